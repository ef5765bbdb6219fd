package restapi

import (
	"time"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// ReservationsAnswer is the answer to /v1/reservations.
type ReservationsAnswer struct {
	Revision     uint64
	Reservations []Reservation
	Continue     string `json:",omitempty"`
}

// Reservation is the room that one Reservation object keeps now: slots that are
// used up or given back are not in it.
type Reservation struct {
	Namespace, Name string
	Scheduler       string `json:",omitempty"`
	Priority        int32
	Preemptible     bool
	// Policy is Once, Aligned or Restricted.
	Policy    string
	ExpiresAt time.Time `json:",omitzero"` // of the first slot that does
	Slots     []Slot
}

// Slot is the room that one slot of a reservation keeps on a node.
type Slot struct {
	Name, Node string
	Requests   Amounts
	// Free is what is left of Requests beyond what Consumers ask for.
	Free      Amounts
	HostPorts []string  `json:",omitempty"`
	ExpiresAt time.Time `json:",omitzero"`
	// Pod and UID are of the only pod that may use the slot, if it is for one.
	Pod string `json:",omitempty"`
	UID string `json:",omitempty"`
	// Consumers are the pods that use it now.
	Consumers []Consumer `json:",omitempty"`
}

// Consumer is a pod that uses a slot.
type Consumer struct {
	Pod   string
	UID   string `json:",omitempty"`
	State string // Binding or Bound
}

// NodeSlot is a slot and whose it is.
type NodeSlot struct {
	Namespace, Reservation string
	Scheduler              string `json:",omitempty"`
	Priority               int32
	Preemptible            bool
	Policy                 string
	Slot                   Slot
}

// PodName names a pod.
type PodName struct {
	Namespace, Pod string
	UID            string `json:",omitempty"`
}

// holdName is namespace/name/slot, or nothing.
func holdName(ref ledger.HoldRef) string {
	if ref.Name == "" {
		return ""
	}
	return ref.String()
}

func newSlot(t *resources.Table, view *ledger.HoldView) Slot {
	s := Slot{
		Name: view.Ref.Slot, Node: view.Node, Requests: requestAmounts(t, view.Request), Free: requestAmounts(t, view.Rest),
		HostPorts: hostPortNames(view.Request), ExpiresAt: utc(view.Deadline), Pod: view.Pod.Name, UID: string(view.Pod.UID),
	}
	for _, c := range view.Consumers {
		s.Consumers = append(s.Consumers, Consumer{Pod: c.Pod.Name, UID: string(c.Pod.UID), State: c.State.String()})
	}
	return s
}

func newNodeSlot(t *resources.Table, view *ledger.HoldView) NodeSlot {
	return NodeSlot{
		Namespace: view.Ref.Namespace, Reservation: view.Ref.Name, Scheduler: view.Scheduler, Priority: view.Priority,
		Preemptible: view.Preemptible, Policy: string(view.Policy), Slot: newSlot(t, view),
	}
}

// newReservation is a reservation of which view is the first slot.
func newReservation(view *ledger.HoldView) Reservation {
	return Reservation{
		Namespace: view.Ref.Namespace, Name: view.Ref.Name, Scheduler: view.Scheduler, Priority: view.Priority,
		Preemptible: view.Preemptible, Policy: string(view.Policy), ExpiresAt: utc(view.Deadline), Slots: []Slot{},
	}
}

// add adds a slot.
func (r *Reservation) add(t *resources.Table, view *ledger.HoldView) {
	r.Slots = append(r.Slots, newSlot(t, view))
	if at := utc(view.Deadline); !at.IsZero() && (r.ExpiresAt.IsZero() || at.Before(r.ExpiresAt)) {
		r.ExpiresAt = at
	}
}
