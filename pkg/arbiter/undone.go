package arbiter

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/gates"
)

const (
	// longestUndone is the longest pause after something was allowed and did not happen. Who tries for ever has the
	// capacity for grace of it.
	longestUndone = time.Minute
	// maxUndone is of how many pods is remembered what did not happen. Beyond it the one of longest ago is forgotten.
	maxUndone = 16384
)

// undone is how often a Binding, or a resize, of a pod was allowed and did not happen, and until when none is allowed.
type undone struct {
	times int
	until time.Time
}

// didNotHappen takes note of a Binding or a resize that was allowed and did not happen. A policy, a quota or another
// webhook may refuse it always, and its sender may try for ever. So from the second time on the pod has to wait, each
// time for twice as long. mu is held.
func (s *pendings) didNotHappen(pod types.UID) {
	known, _ := s.undone.Get(pod)
	u, _ := known.(undone)
	if u.times++; u.times > 1 {
		u.until = time.Now().Add(min(grace<<min(u.times-2, 8), longestUndone))
	}
	s.undone.Add(pod, u)
}

// tooOften says why a Binding or a resize is not allowed now that was allowed before; nil where it may be. before is
// what was allowed, as long as it is pending. Once it is overdue it is to be withdrawn, which a repeat must not put
// off. mu is held.
func (s *pendings) tooOften(p, before *pending) *gates.Error {
	e := &gates.Error{Outcome: gates.Busy, Pod: p.ref, Node: p.node, Resize: p.resize}
	known, _ := s.undone.Get(p.ref.UID)
	u, _ := known.(undone)
	switch now := time.Now(); {
	case before != nil && before.node == p.node && !before.create && !now.Before(before.due):
		e.Why = "it was allowed before, has not happened, and is being withdrawn"
	case now.Before(u.until):
		e.Why = fmt.Sprintf("it was allowed %d times and did not happen (does a policy, a quota or another webhook refuse "+
			"it?); it may be allowed again at %s", u.times, u.until.UTC().Format(time.RFC3339))
	default:
		return nil
	}
	return e
}
