package reserver

// WatchSnapshot is the data of the snapshot events a watch starts with. The
// account may come in several of them; it is complete, and of revision
// Revision, with the one that has More false.
//
// Instance is made up anew whenever a server starts: revisions can be compared
// only where it is the same.
type WatchSnapshot struct {
	Instance string
	Revision uint64
	Nodes    []Node
	Claims   []Claim
	Slots    []NodeSlot
	More     bool
}

// The types of claim events about what is kept for a pod in memory: a claim in state
// Reserved. The first tells that it is there, or renewed.
const (
	ClaimReserved   = "ClaimReserved"
	ClaimExpired    = "ClaimExpired"
	ClaimUnreserved = "ClaimUnreserved" // given back, or the pod is gone, or bound elsewhere
)

// WatchClaim is the data of a claim event.
type WatchClaim struct {
	Revision uint64
	// Type is ClaimReserved, ClaimBinding, ClaimBound, ClaimMoved, ClaimResized or
	// ClaimLinked: Claim is what holds now. So it is after ClaimIdentified, where it
	// stands for the claim of the same name that had no UID. After ClaimExpired,
	// ClaimUnreserved, ClaimBindFailed and ClaimRemoved the pod has no claim;
	// Claim is what it was.
	Type      string
	Claim     Claim
	MovedFrom string `json:",omitempty"` // the node before, of ClaimMoved
}

// WatchSlot is the data of a slot event.
type WatchSlot struct {
	Revision uint64
	// Type is HoldPlaced: Slot is what is kept now, with its deadline, or that it
	// is overdue. After
	// HoldConsumed, HoldReleased, HoldExpired and HoldPreempted there is no such
	// slot any more, and pods that used it keep their claims.
	Type string
	Slot NodeSlot
	// By is the pod that ended it, of HoldConsumed and HoldPreempted.
	By *PodName `json:",omitempty"`
}

// WatchNode is the data of a node event.
type WatchNode struct {
	Revision uint64
	Type     string // NodeUpdated, NodeRemoved, or DevicesUpdated, which tells Name and Devices only
	Node     WatchedNode
}

// WatchedNode is what a node offers. Claims on it are told by claim events.
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
