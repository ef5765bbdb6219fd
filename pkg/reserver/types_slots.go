package reserver

import "time"

// ReservationsAnswer is the answer to /v1/reservations.
type ReservationsAnswer struct {
	Revision     uint64
	Reservations []Reservation
	// Drains are those that go on, by name: what they keep in the namespaces that are asked for and seen. They are on the
	// first page.
	Drains   []Drain `json:",omitempty"`
	Continue string  `json:",omitempty"`
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
	// Pending is of a Reservation object that waits for capacity, and has no Slots yet.
	Pending *PendingReservation `json:",omitempty"`
}

// PendingReservation says since when a Reservation object waits for capacity, and why.
type PendingReservation struct {
	Since time.Time // when it was made
	// Reason and Message say why it has none yet; Reason is NotTried before the first attempt.
	Reason, Message string
	// SlotCount is how many slots it asks for, all at once.
	SlotCount int
	// Slot is the first one that there is no capacity for, where that is why, and Lacks what that asks for.
	Slot  string      `json:",omitempty"`
	Lacks []SlotLacks `json:",omitempty"`
}

// SlotLacks is what a slot asks for of one resource, and the most there is of it.
type SlotLacks struct {
	Resource  string
	Requested int64
	// Largest is the most that one node has free of those the slot may be on, next to the slots that were given a node
	// before it; or, where Node is empty, what the namespace or the caller may still have.
	Largest int64
	Node    string `json:",omitempty"`
}

// Slot is the capacity that one slot of a reservation keeps on a node.
type Slot struct {
	Name, Node string
	Requests   Amounts
	// Free is what is left of Requests beyond what Consumers ask for.
	Free      Amounts
	HostPorts []string `json:",omitempty"`
	// Devices are those the slot keeps, also while its consumers have them.
	Devices []GivenDevices `json:",omitempty"`
	// AvailableAt is since when its Reservation is available, as status.availableAt, which is a whole second. Where the
	// server made the object it may differ from that by some seconds, until another server takes over. It is missing where
	// the capacity is kept in memory.
	AvailableAt time.Time `json:",omitzero"`
	ExpiresAt   time.Time `json:",omitzero"`
	// Overdue: ExpiresAt has passed, and the slot waits for a bind in flight that uses
	// it. No other pod may use it any more.
	Overdue bool `json:",omitempty"`
	// Pod and UID are of the only pod that may use the slot, if it is for one.
	Pod string `json:",omitempty"`
	UID string `json:",omitempty"`
	// Movable says of a slot in memory that it does not keep its pod from other nodes: the pod is a member of a gang of
	// which others are bound already.
	Movable bool `json:",omitempty"`
	// Consumers are the pods that use it now.
	Consumers []Consumer `json:",omitempty"`
	// Within is namespace/name/slot of what a slot in memory is part of; of that and its users, the larger counts.
	Within string `json:",omitempty"`
}

// Consumer is a pod that uses a slot.
type Consumer struct {
	Pod   string
	UID   string `json:",omitempty"`
	State string // Binding or Bound, or Reserved where a slot in memory is part of the slot
}

// NodeSlot is a slot and whose it is. One in memory has neither Reservation nor a name: it is known by its pod.
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
