package decide

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

const (
	// repeatWithin is how soon after a refusal the next one of the same Binding is a repeat. Back-off of kube-scheduler is
	// 10s at most.
	repeatWithin = time.Minute
	// maxRepeats is how many Bindings that were refused are remembered. Beyond it the one that was asked for longest ago
	// is forgotten: its next refusal is taken for the first one.
	maxRepeats = 16384
	// firstTold is how often a Binding is refused before the first Event on its pod. The next is at ten times as many.
	firstTold = 10
)

// repeats counts how often a repeated Binding was refused. Some schedulers ask for the same Binding each second,
// without end. They would fill the log, and drive the refusals of others out of the memory for refusals.
//
// repeats does not keep answers. Each repeat is decided anew, which is always right and takes 3 of the 30 microseconds
// of the request. For the first member of a gang of 1,000 that does not fit it takes a millisecond.
type repeats struct {
	mu sync.Mutex // guards the entries
	of *lru.Cache // by refusedBinding: *repeated
}

// refusedBinding is what a caller was refused.
type refusedBinding struct {
	pod          types.UID
	node, caller string
}

// repeated is how often that was, and for which reason.
type repeated struct {
	reason      string
	since, last time.Time
	times       int
	tell        int // at how many times the next Event on its pod is written
}

func newRepeats() repeats { return repeats{of: lru.New(maxRepeats)} }

// noted takes note of a decision on a Binding, and returns how often that Binding was refused by now, 0 where it is the
// first time.
func (a *Arbiter) noted(k *admission, err error) (times int) {
	pod := k.pod
	key := refusedBinding{pod.Ref.UID, k.node, pod.Caller}
	if err == nil {
		a.repeats.of.Remove(key)
		return 0
	}
	asked := &ledger.Placement{Pod: pod.Ref, Node: k.node, Caller: pod.Caller, Scheduler: pod.Scheduler}
	r := a.refusalOf(requeue.Admission, asked, err)
	switch {
	case r == nil:
		return 0
	case k.create || pod.Ref.UID == "" || r.Warned: // with a warning it goes ahead
		if k.create {
			r.Rejection.Pod.UID = "" // nobody will see a pod of this UID
		}
		a.refuse(r)
		return 0
	}
	if a.countRepeat(key, k, r); !requeue.IsRound(r.Times) {
		r.At = a.o.Ledger.Clock.Wall()
		a.o.Waiting.RefusedAgain(r)
		return r.Times
	}
	a.refuse(r)
	return r.Times
}

// countRepeat counts a refusal and writes the number into it. Where these are many, it writes an Event on the pod.
func (a *Arbiter) countRepeat(key refusedBinding, k *admission, r *requeue.Refusal) {
	now := a.o.Ledger.Clock.Now()
	a.repeats.mu.Lock()
	defer a.repeats.mu.Unlock()
	known, _ := a.repeats.of.Get(key)
	e, ok := known.(*repeated)
	if !ok || e.reason != r.Reason || now.Sub(e.last) > repeatWithin {
		// Nothing of a request is held on to.
		key = refusedBinding{types.UID(strings.Clone(string(key.pod))), strings.Clone(key.node), strings.Clone(key.caller)}
		a.repeats.of.Add(key, &repeated{reason: r.Reason, since: now, last: now, times: 1, tell: firstTold})
		return
	}
	e.last = now
	e.times++
	r.Times = e.times
	a.o.Metrics.ObserveRepeat(k.pod.Scheduler, r.Reason)
	if e.times >= e.tell && a.o.Waiting.TellRepeated(k.pod, r, now.Sub(e.since)) {
		for e.tell <= e.times {
			e.tell *= 10
		}
	}
}
