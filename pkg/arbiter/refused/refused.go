// Package refused remembers who was refused capacity lately, and which pods wait since.
//
// A refusal is one pod that one call refused. A call of filter asks about many nodes: it is one refusal, with the
// reasons counted by node, where no node is left, and none where one is. A call for a gang is a refusal of each of its
// pods that was refused.
//
// What may be touched: the memory is bounded here. Refusals do not outlive the process.
package refused

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

const (
	// MaxRefusals is how many of the latest refusals are remembered.
	MaxRefusals = 10_000
	// maxWaiting is how many pods that were refused are remembered. Beyond it those that were refused longest ago are
	// forgotten.
	maxWaiting = 100_000
	// maxHolders is how many of the holders of a refusal are remembered, and maxMessage how many bytes of its message.
	maxHolders = 3
	maxMessage = 500
)

// The paths by which pods are refused.
const (
	Filter    = "filter"
	Bind      = "bind"
	Admission = "admission"
	Reserve   = "reserve" // of /reserve, and of the Go API
	Plugin    = "plugin"  // of the scheduler in the same process, and of plugins elsewhere that tell of it
	Object    = "object"  // of a Reservation
	Watch     = "watch"   // of a pod that was bound without asking; where a server only observes
	Resize    = "resize"  // of a pod that has its node
)

// Refusal is one pod that one call refused. It is not changed once it is in a Log.
type Refusal struct {
	// Number is one more than that of the refusal before.
	Number uint64
	At     time.Time
	// Path is one of those above.
	Path              string
	Caller, Scheduler string
	// Reason is the ledger's, or one of those of the arbiter. Message says it in words where Rejection does not.
	Reason, Message string
	// Observed says that it was not refused: the server only observes, and the pod has the node.
	Observed bool
	// Warned says that it went ahead all the same: the admission webhook only warns.
	Warned bool
	// Times is how often a Binding was refused by now that is asked for again and again, 0 where it is the first time. Of these
	// refusals the Log has those whose Times IsRound.
	Times int
	// Rejection has the pod and, where one node was asked about, that node; else the one where the pod lacked least.
	Rejection ledger.Rejection
	// Reasons counts the nodes asked about by the reason they were refused for, most first; empty where it was one node.
	Reasons []Count
}

// Count is how many nodes were refused for a reason.
type Count struct {
	Reason ledger.Reason
	Nodes  int
}

// CountReasons counts the nodes of verdicts that refuse by their reasons, most first.
func CountReasons(verdicts []ledger.Verdict) (counts []Count) {
	for _, v := range verdicts {
		if v.Reason == ledger.Fits {
			continue
		}
		k := slices.IndexFunc(counts, func(c Count) bool { return c.Reason == v.Reason })
		if k < 0 {
			k = len(counts)
			counts = append(counts, Count{Reason: v.Reason})
		}
		counts[k].Nodes++
	}
	slices.SortFunc(counts, func(a, b Count) int { return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Reason, b.Reason)) })
	return slices.Clip(counts)
}

// Waiter is a pod that was refused and is not known to be bound or gone since.
type Waiter struct {
	// Since is when it was refused first, and Last its last refusal.
	Since time.Time
	Last  *Refusal
	// Times is how often it was refused.
	Times int
}

// Log remembers refusals. Its zero value is ready. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex // guards what follows
	ring    []*Refusal // the refusal of number n is at n % MaxRefusals
	next    uint64     // how many there were
	wakes   []chan struct{}
	waiting map[types.UID]Waiter
}

// Add remembers a refusal. It takes the memory of r over, but of no strings.
func (l *Log) Add(r *Refusal) {
	r.compact()
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Number = l.next + 1
	if l.next < MaxRefusals {
		l.ring = append(l.ring, r)
	} else {
		l.ring[l.next%MaxRefusals] = r
	}
	l.next++
	l.wait(r)
	for _, wake := range l.wakes {
		select {
		case wake <- struct{}{}:
		default: // it has an unread wake-up already
		}
	}
}

// Again remembers a refusal that is one more of many: as the last of its pod, but not among the latest of all, out of which it
// would drive those of others.
func (l *Log) Again(r *Refusal) {
	r.compact()
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Number = l.next
	l.wait(r)
}

// IsRound reports whether a number of times is 1, 10, 100 and so on, or 0: those of which people are told.
func IsRound(times int) bool {
	for times >= 10 && times%10 == 0 {
		times /= 10
	}
	return times <= 1
}

// Subscribe returns a channel that gets a value after refusals: one value may stand for many. cancel must be called once
// when it is no longer read.
func (l *Log) Subscribe() (wake <-chan struct{}, cancel func()) {
	ch := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakes = append(l.wakes, ch)
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wakes = slices.DeleteFunc(l.wakes, func(o chan struct{}) bool { return o == ch })
	}
}

// compact lets go of what r would keep of requests, and of what is more than is remembered.
func (r *Refusal) compact() {
	for _, s := range []*string{&r.Caller, &r.Scheduler, &r.Rejection.Pod.Namespace, &r.Rejection.Slot.Namespace, &r.Rejection.Node, &r.Rejection.Resource} {
		*s = unique.Make(*s).Value()
	}
	r.Rejection.Pod.Name = strings.Clone(r.Rejection.Pod.Name)
	r.Rejection.Pod.UID = types.UID(strings.Clone(string(r.Rejection.Pod.UID)))
	if len(r.Message) > maxMessage {
		r.Message = strings.ToValidUTF8(r.Message[:maxMessage], "") + "..."
	}
	if len(r.Rejection.Holders) > maxHolders {
		r.Rejection.Holders = slices.Clone(r.Rejection.Holders[:maxHolders])
	}
}

// wait remembers that a pod waits, if it does. l.mu is held.
func (l *Log) wait(r *Refusal) {
	uid := r.Rejection.Pod.UID
	if uid == "" || r.Path == Resize || r.Path == Object || r.Observed || r.Warned {
		return
	}
	w, known := l.waiting[uid]
	if !known {
		if l.waiting == nil {
			l.waiting = map[types.UID]Waiter{}
		}
		if len(l.waiting) >= maxWaiting {
			l.dropOldest(maxWaiting / 10)
		}
		w.Since = r.At
	}
	w.Last = r
	w.Times++
	l.waiting[uid] = w
}

func (l *Log) dropOldest(count int) {
	oldest := make([]*Refusal, 0, len(l.waiting))
	for _, w := range l.waiting {
		oldest = append(oldest, w.Last)
	}
	slices.SortFunc(oldest, func(a, b *Refusal) int { return cmp.Compare(a.Number, b.Number) })
	for _, r := range oldest[:count] {
		delete(l.waiting, r.Rejection.Pod.UID)
	}
}

// Settled forgets that a pod waits: it is bound, or gone.
func (l *Log) Settled(pod types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, pod)
}

// After returns the refusals that are remembered after one of a number, in order, and the number of the last there was.
func (l *Log) After(number uint64) (refusals []*Refusal, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest := l.next - uint64(len(l.ring))
	from := min(max(number, oldest), l.next)
	refusals = make([]*Refusal, 0, l.next-from)
	for n := from; n < l.next; n++ {
		refusals = append(refusals, l.ring[n%MaxRefusals])
	}
	return refusals, l.next
}

// Waiting returns the pods that wait, in no order.
func (l *Log) Waiting() []Waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := make([]Waiter, 0, len(l.waiting))
	for _, w := range l.waiting {
		waiting = append(waiting, w)
	}
	return waiting
}
