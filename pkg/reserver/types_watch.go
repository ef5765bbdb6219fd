package reserver

// WatchSnapshot is the data of the snapshot events a watch starts with. The
// account may come in several of them; it is complete, and of revision
// Revision, with the one that has More false.
//
// Instance is made up anew whenever a server starts: revisions can be compared
// only where it is the same.
type WatchSnapshot struct {
	Instance    string
	Revision    uint64
	Nodes       []Node
	Allocations []Allocation
	Slots       []NodeSlot
	More        bool
}

// WatchAllocation is the data of an allocation event.
type WatchAllocation struct {
	Revision uint64
	// Type is AllocationBinding, AllocationBound, AllocationMoved, AllocationResized or
	// AllocationLinked: Allocation is what holds now, and a slot that was kept in memory for the pod
	// has turned into it. So it is after AllocationIdentified, where it stands for the allocation of
	// the same name that had no UID. After AllocationBindFailed and AllocationRemoved the pod has no
	// allocation; Allocation is what it was.
	Type       string
	Allocation Allocation
	MovedFrom  string `json:",omitempty"` // the node before, of AllocationMoved
}

// WatchSlot is the data of a slot event.
type WatchSlot struct {
	Revision uint64
	// Type is SlotPlaced: Slot is what is kept now, with its deadline, or that it
	// is overdue. So it is after SlotIdentified, where it stands for the slot in memory of the same
	// pod name that had no UID. After SlotConsumed, SlotReleased, SlotExpired and SlotPreempted there is no such
	// slot any more, and pods that used it keep their allocations.
	Type string
	Slot NodeSlot
	// By is the pod that ended it, of SlotConsumed and SlotPreempted.
	By *PodName `json:",omitempty"`
}

// WatchNode is the data of a node event.
type WatchNode struct {
	Revision uint64
	Type     string // NodeUpdated, NodeRemoved, or DevicesUpdated, which tells Name and Devices only
	Node     WatchedNode
}

// WatchedNode is what a node offers. Allocations on it are told by allocation events.
type WatchedNode struct {
	Name          string
	UID           string `json:",omitempty"`
	Unschedulable bool
	Allocatable   Amounts
	Devices       []Device `json:",omitempty"`
}

// WatchBookmark is the data of a bookmark event: the stream has caught up with
// Revision. It is also the data of an expired event, which ends the stream:
// changes after Revision were lost, and a new watch has to start anew.
type WatchBookmark struct {
	Instance string
	Revision uint64
}
