package decide

import (
	"fmt"
	"time"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
)

const (
	// longestUndone is the longest pause after something was allowed and did not happen, unless it has had its capacity
	// for more than a tenth of that.
	longestUndone = time.Minute
	// undoneFor is how long it is remembered what did not happen, and maxUndone for how many pods: the last ones.
	undoneFor = 10 * time.Minute
	maxUndone = 16384
)

// undone is how often a Binding or a resize was allowed and did not happen, and until when it is not allowed again.
type undone struct {
	times int
	until time.Time
}

// didNotHappen takes note of a Binding or a resize that was allowed and did not happen. A policy, a quota or another
// webhook may refuse it always, and its sender may try for ever. So from the second time on the pod has to wait, each
// time for twice as long. mu is held.
func (s *allowances) didNotHappen(p *allowance) {
	now := time.Now()
	known, _ := s.undone.Get(p.key())
	u, _ := known.(undone)
	if now.Sub(u.until) > undoneFor && !u.until.IsZero() {
		u = undone{}
	}
	u.until = now
	if u.times++; u.times > 1 {
		u.until = now.Add(pauseAfter(u.times, now.Sub(p.since)))
	}
	s.undone.Add(p.key(), u)
}

// pauseAfter returns how long nothing is kept for what came to nothing so many times. had is how long it had its
// capacity the last time.
func pauseAfter(times int, had time.Duration) time.Duration {
	return min(had<<min(times-2, 8), max(longestUndone, 9*had))
}

// tooOften says why a Binding or a resize is not allowed now that was allowed before; nil where it may be. before is
// what was allowed, as long as its allowance stands. Once it is overdue it is to be withdrawn, which a repeat must not
// put off. mu is held.
func (s *allowances) tooOften(p, before *allowance) *gates.Error {
	e := &gates.Error{Outcome: gates.Busy, Pod: p.ref, Node: p.node, Resize: p.resize}
	known, _ := s.undone.Get(p.key())
	u, _ := known.(undone)
	switch now := time.Now(); {
	case before != nil && before.node == p.node && !before.create && (before.pause > 0 || !now.Before(before.due)):
		e.Why, e.Soon = "it was allowed before, has not happened, and is being withdrawn", true
	case now.Before(u.until):
		e.Why = fmt.Sprintf("it was allowed %d times and did not happen (does a policy, a quota or another webhook refuse "+
			"it?); it may be allowed again at %s", u.times, u.until.UTC().Format(time.RFC3339))
	default:
		return nil
	}
	return e
}
