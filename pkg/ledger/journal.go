package ledger

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// EventType is the kind of a change.
type EventType string

// The kinds of changes. After the first six the pod's allocation is what the event
// says; after the next two the pod has no allocation any more.
const (
	// AllocationIdentified: an allocation made by name got the UID of the pod that came to
	// exist. It stands for the one without a UID from now on.
	AllocationIdentified EventType = "AllocationIdentified"

	// AllocationBinding and AllocationBound: the slot kept for the pod in memory on that node, if
	// there was one, has turned into this allocation.
	AllocationBinding EventType = "AllocationBinding"
	AllocationBound   EventType = "AllocationBound"
	AllocationMoved   EventType = "AllocationMoved"   // observed bound to another node than allocated
	AllocationResized EventType = "AllocationResized" // the pod counts for another amount, or other devices
	AllocationLinked  EventType = "AllocationLinked"  // was bound with a slot that was found later

	AllocationBindFailed EventType = "AllocationBindFailed" // the API server refused the binding
	AllocationRemoved    EventType = "AllocationRemoved"    // the pod was deleted or has finished

	// SlotPlaced: there is a slot now, its deadline or priority has changed, or the
	// deadline has passed while a bind is in flight. One in memory has another size.
	SlotPlaced EventType = "SlotPlaced"
	// SlotIdentified: what was kept in memory for a name is kept for the pod that came to
	// exist. It stands for the one without a UID from now on.
	SlotIdentified EventType = "SlotIdentified"
	// After these there is no such slot any more; pods that used it keep their allocations.
	SlotConsumed  EventType = "SlotConsumed"  // the pod of a Once slot was bound
	SlotReleased  EventType = "SlotReleased"  // it was given back
	SlotExpired   EventType = "SlotExpired"   // its deadline passed
	SlotPreempted EventType = "SlotPreempted" // a pod of higher priority took the capacity

	NodeUpdated EventType = "NodeUpdated"
	// NodeLabeled: nothing but the node's labels has changed.
	NodeLabeled EventType = "NodeLabeled"
	NodeRemoved EventType = "NodeRemoved"

	// DevicesUpdated: the node has other devices now.
	DevicesUpdated EventType = "DevicesUpdated"
)

// OfSlot reports whether events of the kind are about slots.
func (t EventType) OfSlot() bool {
	switch t {
	case SlotPlaced, SlotIdentified, SlotConsumed, SlotReleased, SlotExpired, SlotPreempted:
		return true
	default:
		return false
	}
}

// Event is one change of the ledger.
type Event struct {
	// Revision is the ledger's revision after the change.
	Revision uint64
	Type     EventType
	Node     string

	// Of allocations and slots. Pod is, of a slot, the only pod that may use it, or the one that ended it.
	Pod       PodRef
	State     State
	Scheduler string
	Priority  int32
	Request   *resources.Request
	Deadline  time.Time // zero unless the slot expires
	// EventDetails is never nil. It must not be changed: nearly all events of pods share one without any.
	*EventDetails
}

// EventDetails is the part of an Event that only nodes, the slots of reservations, what uses
// those or has devices, and moved allocations have.
type EventDetails struct {
	// Slot is the slot the event is about, or the one the allocation uses. It is empty where
	// the event is about a slot in memory: that is known by its pod.
	Slot        SlotRef
	Within      SlotRef        // the slot that a slot in memory is part of
	Policy      AllocatePolicy // of slots
	Preemptible bool           // of slots
	AvailableAt time.Time      // of slots
	Overdue     bool           // of slots: no other pod may use it any more
	Movable     bool           // of slots in memory
	// Given are the devices of a claim or a slot; Devices what a slot was asked to keep.
	Given   []GivenDevices
	Devices *DeviceRequest
	// MovedFrom is the node the allocation was on before (AllocationMoved).
	MovedFrom string

	// Of nodes:
	NodeUID       types.UID
	Allocatable   []resources.Amount
	DRA           []resources.Column // what DRA gives devices for
	Unschedulable bool
	Labels        map[string]string // must not be changed
	// Lapsed says that the only news is that what was kept for a nominated pod is free (NodeUpdated).
	Lapsed      bool
	NodeDevices []devices.Device // of DevicesUpdated
}

// journal keeps the last changes in a ring: the change that made revision r is at index r modulo the ring's size.
type journal struct {
	ring  []Event
	first uint64 // the revision the ledger started at; no event made it
	wakes []chan struct{}
}

// write raises the revision, keeps the change that made it, and wakes the subscribers.
func (l *account) write(e Event) {
	l.revision++
	e.Revision = l.revision
	l.journal.ring[l.revision%uint64(len(l.journal.ring))] = e
	l.wake()
}

// wake wakes the subscribers.
func (l *account) wake() {
	for _, wake := range l.journal.wakes {
		select {
		case wake <- struct{}{}:
		default: // it has an unread wake-up already
		}
	}
}

// record records a change of an allocation or a slot; pod is the allocation's, or the only one that may
// use the slot, or the one that ended it.
func (l *account) record(kind EventType, e *entry, pod PodRef) { l.recordMove(kind, e, pod, "") }

// noDetails are those of most events, and onceInMemory of a slot in memory for which there is nothing else to say.
var noDetails, onceInMemory = &EventDetails{}, &EventDetails{Policy: Once}

func (l *account) recordMove(kind EventType, e *entry, pod PodRef, from string) {
	details := noDetails
	if e.inMemory() {
		details = onceInMemory
	}
	if e.slot != nil || e.within != nil || e.devices != nil || e.movable || from != "" {
		details = &EventDetails{MovedFrom: from, Given: e.given(), Movable: e.movable, Policy: details.Policy}
		if e.isAllocation() {
			details.Slot = e.within.ref()
		} else {
			details.Within, details.Overdue, details.Devices = e.within.ref(), e.overdue, e.asks()
		}
		if e.slot != nil {
			details.Slot, details.Policy, details.Preemptible = e.slot.ref, e.slot.policy, e.slot.preemptible
			details.AvailableAt = e.slot.availableAt
		}
	}
	l.write(Event{
		Type: kind, Node: l.names[e.node], Pod: pod, State: e.state, Scheduler: e.scheduler, Priority: e.priority,
		Request: e.request, Deadline: moment(e.deadline), EventDetails: details,
	})
}

// recordNode records a change of a node.
func (l *account) recordNode(kind EventType, name string, details *EventDetails) {
	l.write(Event{Type: kind, Node: name, EventDetails: details})
}

// EventsSince appends to dst up to limit changes that came after revision and returns them in order. ok is false where
// the journal no longer reaches back that far, or revision is one the ledger has not reached: the caller must start
// anew from a Snapshot.
func (l Reader) EventsSince(dst []Event, revision uint64, limit int) (events []Event, ok bool) {
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

// Advance raises the revision to at least first, without a change. A ledger that followed another one, whose
// revisions others know, does so before it takes its place. Readers of the journal have to start anew.
func (l Observer) Advance(first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first > l.revision {
		l.revision, l.journal.first = first, first
	}
}

// Subscribe returns a channel that gets a value after changes: one value may
// stand for many. cancel must be called once when it is no longer read.
func (l Reader) Subscribe() (wake <-chan struct{}, cancel func()) {
	ch := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.journal.wakes = append(l.journal.wakes, ch)
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.journal.wakes = slices.DeleteFunc(l.journal.wakes, func(o chan struct{}) bool { return o == ch })
	}
}
