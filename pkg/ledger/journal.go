package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// EventType is the kind of a change.
type EventType string

// The kinds of changes. After the first six the pod's claim is what the event
// says; after the next four the pod has no claim any more.
const (
	// ClaimIdentified: a claim made by name got the UID of the pod that came to
	// exist. It stands for the one without a UID from now on.
	ClaimIdentified EventType = "ClaimIdentified"

	ClaimReserved EventType = "ClaimReserved"
	ClaimBinding  EventType = "ClaimBinding"
	ClaimBound    EventType = "ClaimBound"
	ClaimMoved    EventType = "ClaimMoved"   // observed bound to another node than claimed
	ClaimResized  EventType = "ClaimResized" // the pod counts for another amount

	ClaimExpired    EventType = "ClaimExpired"    // its deadline passed
	ClaimUnreserved EventType = "ClaimUnreserved" // its scheduler gave it back
	ClaimBindFailed EventType = "ClaimBindFailed" // the API server refused the binding
	ClaimRemoved    EventType = "ClaimRemoved"    // the pod was deleted or has finished

	NodeUpdated EventType = "NodeUpdated"
	NodeRemoved EventType = "NodeRemoved"
)

// Event is one change of the ledger.
type Event struct {
	// Revision is the ledger's revision after the change.
	Revision uint64
	Type     EventType
	Node     string

	// Of claims:
	Pod       PodRef
	State     State
	Scheduler string
	Priority  int32
	Request   *resources.Request
	Deadline  time.Time // zero unless the claim expires
	// MovedFrom is the node the claim was on before (ClaimMoved).
	MovedFrom string

	// Of nodes:
	NodeUID       types.UID
	Allocatable   []resources.Amount
	Unschedulable bool
}

// journal keeps the last changes in a ring: the change that made revision r is
// at index r modulo the ring's size.
type journal struct {
	ring  []Event
	first uint64 // the revision the ledger started at; no event made it
	wakes map[chan struct{}]struct{}
}

func newJournal(size int, first uint64) journal {
	return journal{ring: make([]Event, size), first: first, wakes: map[chan struct{}]struct{}{}}
}

// append raises the revision for e and wakes the subscribers.
func (l *Ledger) append(e Event) {
	l.revision++
	e.Revision = l.revision
	l.journal.ring[l.revision%uint64(len(l.journal.ring))] = e
	for wake := range l.journal.wakes {
		select {
		case wake <- struct{}{}:
		default: // it has an unread wake-up already
		}
	}
}

// record appends a change of a claim.
func (l *Ledger) record(t EventType, c *claim) {
	l.append(l.claimEvent(t, c))
}

func (l *Ledger) claimEvent(t EventType, c *claim) Event {
	return Event{
		Type: t, Node: l.nodes[c.node].name, Pod: c.pod, State: c.state, Scheduler: c.scheduler,
		Priority: c.priority, Request: c.request, Deadline: c.deadlineTime(),
	}
}

func (c *claim) deadlineTime() time.Time {
	if c.heapIndex < 0 {
		return time.Time{}
	}
	return time.Unix(0, c.deadline)
}

// EventsSince appends to dst up to limit changes that came after revision and
// returns them in order. ok is false where the journal no longer reaches back
// that far, or revision is one the ledger has not reached: the caller must
// start anew from a Snapshot.
func (l *Ledger) EventsSince(dst []Event, revision uint64, limit int) (events []Event, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	size := uint64(len(l.journal.ring))
	if revision > l.revision || revision < l.journal.first || l.revision-revision > size {
		return dst, false
	}
	for r := revision + 1; r <= l.revision && limit > 0; r++ {
		dst = append(dst, l.journal.ring[r%size])
		limit--
	}
	return dst, true
}

// Subscribe returns a channel that gets a value after changes: one value may
// stand for many. cancel must be called once when it is no longer read.
func (l *Ledger) Subscribe() (wake <-chan struct{}, cancel func()) {
	ch := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.journal.wakes[ch] = struct{}{}
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.journal.wakes, ch)
	}
}
