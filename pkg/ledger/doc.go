// Package ledger keeps the one account of node capacity that every scheduler of
// a cluster reserves from. It answers "is there still capacity for this pod on this
// node?" atomically, remembers what it promised and never promises the same
// capacity twice.
//
// It is a pure state machine: no I/O, no goroutines, no clock (now is a
// parameter), no logging. One Ledger, one lock, safe for concurrent use.
//
// # What it holds
//
// Nodes, allocations (each is one pod's share of one node) and slots (each keeps
// capacity on one node for pods to come). An allocation may use a slot on its node. For
// every node n and resource r, the pod count among them,
//
//	used(n,r) = sum of req(p,r)                       over pods p on n that use no slot
//	          + sum of max( slot(s,r),
//	                        sum of req(p,r) over
//	                        pods p that use slot s )  over slots s on n
//
// The account keeps that without ever taking it anew: a pod that uses a slot counts
// like any other, and the slot counts for its rest, max(0, slot - what its pods ask for).
// A slot's host port is free for the pods that use the slot, one of them at a time.
//
// A pod's claims of devices, and a slot's, are decided in the same step as its capacity
// (pkg/devices chooses):
//   - A device has one pod, or is kept by one slot, or is free; the pods of a slot
//     are given the slot's first. A claim of devices serves one pod at a time; a slot
//     may keep one for its pod.
//   - Which devices a pod has is fixed when its capacity is reserved, and stays so while it
//     asks for the same.
//   - The pods and slots of one plan are given devices one after another; where that
//     fails for want of devices, and all or nothing is to be granted, together.
//   - Of a pod that is gone a slot keeps the devices of its claims, while each is of the resource that its claim asks
//     for by then, or none of them; of what the pod asked for by count it keeps the count.
//   - A bound pod has what it says that it was bound with when it is first seen, and a
//     slot that was granted before what its object says, whether these are there and free
//     or not.
//
// # Budgets
//
// Whatever uses capacity counts, by the same sum taken over all nodes, in the budget of its
// namespace, and of the caller that asked for it, where these are limited (SetLimits). A
// decision that would add to a budget beyond its limit, of a resource that the request names,
// is refused; what turns from a slot into its pod's allocation adds nothing. Slots have limits of their own
// besides: what they keep beyond what their pods ask for, and how many there are. The account of a
// budget is kept with that of the nodes, under the same lock, so that two decisions never
// share one gap. What is not limited has no budget.
//
// # Decisions and observations
//
// A decision (Reserve, StartBind) is granted only if for every resource the request
// names with a value above 0, what it adds to used is at most what is free, the pod
// count fits, no host port collides and its devices are there. A resource the request
// does not name is not checked, even where the node is overcommitted on it. What has
// expired by then makes way first.
//
// An observation (a method of Observer) is always recorded, even where it overcommits
// the node: truth wins. Overcommit is reported (Stats, Nodes), and nothing new is granted
// there on that resource. An observation older than what is known of its pod is ignored.
//
// # States of an allocation
//
//	(none) --StartBind--> Binding --Confirm/ObservePod--> Bound
//	   ^                     |  definite failure            |
//	   +------BindFailed-----+                              |
//	   +------RemovePod (deleted, or phase Succeeded or Failed)
//
// ObservePod makes a Bound allocation from any state, also from (none), and moves it when
// the pod was bound to another node. Binding never expires: only the API server knows how
// it ended.
//
// The pod of a Binding allocation may change before it is bound: ChangeBind has the allocation count for what is asked
// then, in one step, or leaves it as it is.
//
// An allocation in either state may grow: a resize of its pod that is granted (Resize) counts from then on, beside what
// the pod is seen to ask for, the larger of the two. A resize is written on top of one version of the pod or not at
// all, so it stops counting when a newer one is seen, or it is known that it will not be written (SettleResize).
//
// # States of a slot
//
//	(none) --Reserve, ObserveSlot, RemovePodHolding--> kept --+
//	   |                                                      |
//	   +-- SlotConsumed:  policy Once, and its pod is bound <-+
//	   +-- SlotExpired:   deadline passed, and no bind is in flight that uses it: until then
//	   |                  it is overdue, and takes no new pods
//	   +-- SlotReleased:  ReleaseSlots, Unreserve; or kept for one pod alone, which is gone or
//	   |                  was bound without it, or is another scheduler's than it was kept for
//	   +-- SlotPreempted: a StartBind that may preempt took the capacity; all slots of
//	                      the reservation end with it
//
// A slot in memory, for one pod alone, turns into the pod's allocation by StartBind, in
// the same step. When another slot ends, the allocations that use it stay, with capacity
// of their own; when one of these ends before, its capacity is the slot's again. Which
// pods may use a slot:
//   - A slot kept for one pod (Slot.Pod) is found by the ledger itself. The
//     others are matched by the caller and named in the Placement. None is ever
//     used by a pod of another namespace. AllocatePolicy says how many may.
//   - The first of a pod's slots on the node that will do is used, else the
//     node's free capacity: a slot is a preference.
//   - On a cordoned node only pods that tolerate that use it, and those whose capacity is
//     kept there in memory; on a node that does not exist nobody.
//   - A movable slot, one in memory for a pod of a gang, does not keep its pod from other nodes: a
//     bind there that is granted ends it.
//   - A slot kept for a pod that did not exist (Slot.Unborn) gives way when the pod is observed and is another
//     scheduler's: it is released.
//   - A pod that says it was bound with a slot uses it, in whichever order the two
//     are observed, and whether it fits or not. It does not use another one of that
//     name; where one of the two does not tell its UID, the name is the identity.
//
// Preemption ends reservations as a whole: those of which every slot is
// preemptible and of lower priority than the pod, and none is being bound. Of
// these it spares all it can, those of higher priority first, and it ends nothing
// where that would not help.
//
// A pod that does not fit a node, would without pods of a lower priority, and is nominated for it (Nominate), has these
// make way: to pods of a lower priority than its own, and slots, less is free there by what it asks for, until it has
// capacity itself, is bound, gone or nominated anew, or its time is over. What was granted before stays granted.
//
// Assumptions these rules stand on:
//   - A pod is identified by its UID; by namespace and name only while it does
//     not exist yet. The first decision granted to the pod, or observation of
//     it, that names its UID gives what was made by name that UID. A pod that is gone never
//     gets what was made for its successor's name: a short memory of deleted UIDs tells.
//   - A pod never goes back from bound to unbound, so an observation that shows
//     it unbound is old and releases nothing.
//   - A pod on the same node again is the same success; on another node it is a
//     conflict that names where the pod is. For Reserve a slot kept
//     for the pod alone counts as where it is; StartBind may bind it elsewhere,
//     which gives that slot back.
//   - A renewal only ever puts a deadline off; no deadline is the latest of all.
//
// StartBindWith is StartBind for one of several pods that are useful only together: in the same step slots in
// memory are made for the others, and given up in exchange, or nothing is done at all. Which pods these are, and
// where they may be, is for the caller to know.
//
// What may be touched: who changes a rule changes its transcript in testdata and its law in test/ledgertest, too.
// Nothing in this package may import client-go, net/http or a logger.
package ledger
