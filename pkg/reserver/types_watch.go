package reserver

import "time"

// WatchSnapshot is what a watch starts with. The account may come in several of them; it is complete, and of revision
// Revision, with the one that has More false.
//
// Instance is made up anew whenever a server starts: revisions can be compared only where it is the same.
type WatchSnapshot struct {
	Instance    string
	Revision    uint64
	Time        time.Time `json:",omitzero"` // when it was made
	Nodes       []Node
	Allocations []Allocation
	Slots       []NodeSlot
	More        bool
}

// WatchAllocation is a change of an allocation.
type WatchAllocation struct {
	Revision uint64
	// Type is AllocationBinding, AllocationBound, AllocationMoved, AllocationResized or AllocationLinked: Allocation is
	// what holds now, and a slot that was kept in memory for the pod has turned into it. So it is after
	// AllocationIdentified, where it stands for the allocation of the same name that had no UID. After
	// AllocationBindFailed and AllocationRemoved the pod has no allocation; Allocation is what it was.
	Type       string
	Allocation Allocation
	MovedFrom  string `json:",omitempty"` // the node before, of AllocationMoved
}

// WatchSlot is a change of a slot.
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

// WatchNode is a change of a node.
type WatchNode struct {
	Revision uint64
	// Type is NodeUpdated, also of a node that is new; NodeLabeled where nothing but its labels has changed: both have all
	// but Devices; NodeRemoved; or DevicesUpdated, which has Name and Devices only.
	Type string
	Node WatchedNode
}

// WatchedNode is what a node offers. Allocations on it are changes of their own.
type WatchedNode struct {
	Name          string
	UID           string `json:",omitempty"`
	Unschedulable bool
	Allocatable   Amounts
	Labels        map[string]string `json:",omitempty"`
	Pool          string            `json:",omitempty"` // as in Node
	Devices       []Device          `json:",omitempty"`
}

// BatchMediaType is the type of a watch: lines of WatchBatch.
const BatchMediaType = "application/x-ndjson"

// WatchBatch is one line of a watch: what was ready to be sent together. One without anything but Instance is a sign of
// life.
type WatchBatch struct {
	Instance string
	// Revision is the ledger's after all that the batch has; absent in a sign of life, and in a snapshot that
	// is not complete.
	Revision uint64         `json:",omitzero"`
	Snapshot *WatchSnapshot `json:",omitempty"`
	// Changes are in order, one for each revision.
	Changes []WatchChange `json:",omitempty"`
	// CaughtUp says once that all changes up to Revision have been sent.
	CaughtUp bool `json:",omitzero"`
	// Time is when CaughtUp was sent.
	Time time.Time `json:",omitzero"`
	// Expired ends a stream that was too slow to follow: changes after Revision were lost, and a new
	// watch has to start anew.
	Expired bool `json:",omitzero"`
}

// WatchChange is one change of the ledger. One field is set.
type WatchChange struct {
	Allocation *WatchAllocation `json:",omitempty"`
	Slot       *WatchSlot       `json:",omitempty"`
	Node       *WatchNode       `json:",omitempty"`
}
