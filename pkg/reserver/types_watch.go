package reserver

import "time"

// WatchSnapshot is the data of the snapshot events a watch starts with. The
// account may come in several of them; it is complete, and of revision
// Revision, with the one that has More false.
//
// Instance is made up anew whenever a server starts: revisions can be compared
// only where it is the same.
type WatchSnapshot struct {
	Instance    string
	Revision    uint64
	Time        time.Time `json:",omitzero"` // when it was made
	Nodes       []Node
	Allocations []Allocation
	Slots       []NodeSlot
	More        bool
}

// WatchAllocation is the data of an allocation event.
type WatchAllocation struct {
	Revision uint64
	// Time is when the change was made, to 10 ms, of a server-sent event. The WatchChange of a batch has it, and the Event
	// of a Watcher.
	Time *time.Time `json:",omitempty"`
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
	Time     *time.Time `json:",omitempty"` // as in WatchAllocation
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
	Time     *time.Time `json:",omitempty"` // as in WatchAllocation
	// Type is NodeUpdated, also of a node that is new; NodeLabeled where nothing but its labels has changed: both tell all
	// but Devices; NodeRemoved; or DevicesUpdated, which tells Name and Devices only.
	Type string
	Node WatchedNode
}

// WatchedNode is what a node offers. Allocations on it are told by allocation events.
type WatchedNode struct {
	Name          string
	UID           string `json:",omitempty"`
	Unschedulable bool
	Allocatable   Amounts
	Labels        map[string]string `json:",omitempty"`
	Pool          string            `json:",omitempty"` // as in Node
	Devices       []Device          `json:",omitempty"`
}

// WatchBookmark is the data of a bookmark event: the stream has caught up with
// Revision. It is also the data of an expired event, which ends the stream:
// changes after Revision were lost, and a new watch has to start anew.
type WatchBookmark struct {
	Instance string
	Revision uint64
	Time     time.Time `json:",omitzero"` // when it was told
}

// BatchMediaType is what a client accepts that wants a watch as lines of WatchBatch.
const BatchMediaType = "application/x-ndjson"

// WatchBatch is one line of a watch that is not told as server-sent events: what was ready to be told together. One
// without anything but Instance is a sign of life.
type WatchBatch struct {
	Instance string
	// Revision is the ledger's after all that the batch tells; absent of a sign of life, and of a snapshot that
	// is not complete.
	Revision uint64         `json:",omitzero"`
	Snapshot *WatchSnapshot `json:",omitempty"`
	// Changes are in order, one for each revision.
	Changes []WatchChange `json:",omitempty"`
	// CaughtUp says once that all changes up to Revision have been told.
	CaughtUp bool `json:",omitzero"`
	// Time is when CaughtUp was told.
	Time time.Time `json:",omitzero"`
	// Refusal is told to who asked for refusals. It is none of the ledger's changes, and has no Revision.
	Refusal *Refusal `json:",omitempty"`
	// Expired ends a stream that was too slow to follow: changes after Revision were lost, and a new
	// watch has to start anew.
	Expired bool `json:",omitzero"`
}

// WatchChange is one change of the ledger. One field beside Time is set.
type WatchChange struct {
	// Time is when it was made, to 10 ms; missing where that is the Time of the change before it.
	Time       *time.Time       `json:",omitempty"`
	Allocation *WatchAllocation `json:",omitempty"`
	Slot       *WatchSlot       `json:",omitempty"`
	Node       *WatchNode       `json:",omitempty"`
}
