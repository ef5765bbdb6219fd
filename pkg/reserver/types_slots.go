package reserver

import "time"

// ReservationsAnswer is the answer to /v1/reservations.
type ReservationsAnswer struct {
	Revision     uint64
	Reservations []Reservation
	Continue     string `json:",omitempty"`
}

// Reservation is the capacity that one Reservation object keeps now, or the server's memory for
// one pod: slots that are used up or given back are not in it.
type Reservation struct {
	Namespace   string
	Name        string // empty where it is in memory
	Durable     bool   // an object; false: the server's memory alone has it
	Scheduler   string `json:",omitempty"`
	Priority    int32
	Preemptible bool
	// Policy is Once, Aligned or Restricted.
	Policy    string
	ExpiresAt time.Time `json:",omitzero"` // of the first slot that does
	Slots     []Slot
}

// Slot is the capacity that one slot of a reservation keeps on a node.
type Slot struct {
	Name, Node string
	Requests   Amounts
	// Free is what is left of Requests beyond what Consumers ask for.
	Free      Amounts
	HostPorts []string `json:",omitempty"`
	// Devices are those the slot keeps, also while its consumers have them.
	Devices   []GivenDevices `json:",omitempty"`
	ExpiresAt time.Time      `json:",omitzero"`
	// Overdue: ExpiresAt has passed, and the slot waits for a bind in flight that uses
	// it. No other pod may use it any more.
	Overdue bool `json:",omitempty"`
	// Pod and UID are of the only pod that may use the slot, if it is for one.
	Pod string `json:",omitempty"`
	UID string `json:",omitempty"`
	// Consumers are the pods that use it now.
	Consumers []Consumer `json:",omitempty"`
	// Within is namespace/name/slot of what a slot in memory is part of; of that and its users,
	// the larger counts.
	Within string `json:",omitempty"`
}

// Consumer is a pod that uses a slot.
type Consumer struct {
	Pod   string
	UID   string `json:",omitempty"`
	State string // Binding or Bound, or Reserved where a slot in memory is part of the slot
}

// NodeSlot is a slot and whose it is. One in memory has neither Reservation nor a name: it is known
// by its pod.
type NodeSlot struct {
	Namespace   string
	Reservation string
	Scheduler   string `json:",omitempty"`
	Priority    int32
	Preemptible bool
	Policy      string
	Slot        Slot
}

// PodName names a pod.
type PodName struct {
	Namespace, Pod string
	UID            string `json:",omitempty"`
}
