// Package ledger keeps the one account of node capacity that every scheduler of
// a cluster reserves from. It answers "is there still capacity for this pod on this
// node?" atomically, remembers what it promised and never promises the same
// capacity twice.
//
// It is a pure state machine: no I/O, no goroutines, no clock (now is a
// parameter), no logging. One Ledger, one lock, safe for concurrent use.
// Adapters around it speak HTTP, watch the API server and bind pods.
//
// # What it holds
//
// Nodes (their allocatable amounts), allocations (each is one pod's share of one node)
// and slots (each keeps capacity on one node for pods to come: a slot of a
// reservation). An allocation may use a slot on its node. For every node n and
// resource r, the pod count among them,
//
//	used(n,r) = sum of req(p,r)                       over pods p on n that use no slot
//	          + sum of max( hold(s,r),
//	                        sum of req(p,r) over
//	                        pods p that use slot s )  over slots s on n
//
// The max is what keeps a slot and its pods from counting twice. The account
// keeps it without ever taking it anew: a pod that uses a slot counts like any
// other, and the slot counts for its rest, max(0, slot - what its pods ask for),
// which changes only when its pods do.
//
// A host port is taken by the allocations and slots that name it; a slot's port is
// free for the pods that use the slot, one of them at a time.
//
// # Devices
//
// Some nodes have devices that are told apart (ObserveDevices; pkg/devices chooses
// among them). A pod's claims of devices, and a slot's, are decided in the same step
// as its capacity, and what is given back is given back with it:
//   - A device has one pod, or is kept by one slot, or is free; the pods of a slot
//     are given the slot's first. A claim of devices serves one pod at a time; a slot
//     may keep one for its pod.
//   - Which devices a pod has is fixed when its capacity is reserved, and stays so while it
//     asks for the same.
//   - The pods and slots of one plan are given devices one after another; where that
//     fails for want of devices, and all or nothing is to be granted, together.
//   - A bound pod has what it says that it was bound with when it is first seen, and a
//     slot that was granted before what its object says, whether these are there and free
//     or not.
//
// # Decisions and observations
//
// A decision (Reserve, StartBind, PlaceHolds) is granted only if for every
// resource the request names with a value above 0, what it adds to used is at
// most what is free, the pod count fits and no host port collides. A resource the
// request does not name is not checked, even where the node is overcommitted on
// it. What has expired by then makes way first.
//
// An observation (ObservePod, ObserveNode, RemoveNode, RemovePod,
// RemovePodHolding, ObserveSlot) is always recorded, even where it overcommits the node: truth wins. Overcommit is
// reported (Stats, Nodes), never hidden, and nothing new is granted there on
// that resource.
//
// # States of an allocation
//
//	(none) --StartBind--> Binding --Confirm/ObservePod--> Bound
//	   ^                     |  definite failure            |
//	   +------BindFailed-----+                              |
//	   +------RemovePod (deleted, or phase Succeeded or Failed)
//
//	A reservation in memory is no allocation: it is a slot that only its pod may use,
//	made by Reserve, which ends when its bind begins (StartBind takes its capacity in
//	the same step), at its deadline (Expire) and by Unreserve.
//	StartBind without a reservation makes the allocation in the same step.
//	ObservePod makes a Bound allocation from any state, also from (none), and moves
//	the allocation when the pod was bound to another node than the allocation's.
//
// # States of a slot
//
//	                        +--- Reserve, StartBind: an allocation uses it -----+
//	                        v                                             |
//	(none) --PlaceHolds--> kept (n pods use it, 0 to begin with) ---------+
//	   ^     ObserveSlot    |    ^  |
//	   |     RemovePod-     |    |  +-- Unreserve, Expire, BindFailed, RemovePod of
//	   |     Holding        |    +----- an allocation that uses it: the capacity is the slot's again
//	   |                    |
//	   |                    +-- deadline passed while a bind is in flight --> overdue:
//	   |                    |   no new pods; ends with the last such bind, unless
//	   |                    |   its deadline is put off before
//	   |                    v
//	   +-- SlotConsumed:  policy Once, and its pod is bound
//	   +-- SlotExpired:   deadline passed, and no bind is in flight that uses it
//	   +-- SlotReleased:  ReleaseSlots; or kept for one pod alone, which is gone or
//	   |                  was bound without it
//	   +-- SlotPreempted: a StartBind that may preempt took the capacity; all slots of
//	                      the reservation end with it
//
// When a slot ends, the allocations that use it stay, with capacity of their own. Which
// pods may use a slot:
//   - Once: one pod. Aligned: any number of pods, which may use the node's free
//     capacity besides. Restricted: any number of pods, which together use no more of
//     the resources it names than it has; the pod count is none of them.
//   - A slot kept for one pod (Slot.Pod) is found by the ledger itself. The
//     others are matched by the caller and named in the Placement. None is ever
//     used by a pod of another namespace.
//   - The first of a pod's slots on the node that will do is used, else the
//     node's free capacity: a slot is a preference.
//   - On a cordoned node only pods that tolerate that use it; on a node that does
//     not exist nobody.
//   - A pod that says it was bound with a slot uses it, in whichever order the two
//     are observed, and whether it fits or not.
//
// Preemption ends reservations as a whole: those of which every slot is
// preemptible and of lower priority than the pod, and none is being bound. Of
// these it spares all it can, those of higher priority first, and it ends nothing
// where that would not help.
//
// Assumptions these rules stand on:
//   - A pod is identified by its UID; by namespace and name only while it does
//     not exist yet. The first decision granted to the pod, or observation of
//     it, that names its UID gives the allocation that UID. A pod that is gone never
//     gets the allocation made for its successor's name.
//   - A pod never goes back from bound to unbound, so an observation that shows
//     it unbound is old and releases nothing.
//   - A pod on the same node again is the same success; on another node it is a
//     conflict that names where the pod is. For Reserve and PlaceHolds a slot kept
//     for the pod alone counts as where it is; StartBind may bind it elsewhere,
//     which gives that slot back.
//   - A reservation is redeemed only while the node still has capacity for it: the
//     kubelet would reject the pod. Cordoning the node does not matter.
//   - A renewal only ever puts a deadline off; no deadline is the latest of all.
//   - An allocation that uses a slot outlives the slot's end: it has a deadline of its own.
//   - A pod that was bound with a reservation does not use another one of that
//     name. Where one of the two does not tell its UID, the name is the identity.
//   - Binding never expires: only the API server knows how it ended.
//   - A Bound allocation goes only by an observation.
//   - A short memory of deleted UIDs refuses decisions for pods that are gone.
//   - Observations carry resource versions; what is older than what is known of
//     the same pod is ignored.
//
// Every change raises the Revision by one and is kept in a bounded journal
// (EventsSince), from which watchers keep mirrors.
//
// What may be touched: rules change here and in ledgertest's naive model
// together. Nothing in this package may import client-go, net/http or a logger.
package ledger
