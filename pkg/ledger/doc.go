// Package ledger keeps the one account of node capacity that every scheduler of a cluster reserves from. It is a pure
// state machine: no I/O, no goroutines, no clock (now is a parameter), no logging. One Ledger, one lock, safe for
// concurrent use. For every node n and resource r, the pod count among them,
//
//	used(n,r) = sum of req(p,r) over pods p on n that use no slot
//	          + sum of max( slot(s,r), sum of req(p,r) over pods p that use slot s ) over slots s on n
//
// The sum is never taken anew: a pod that uses a slot counts like any other, and the slot for its rest, max(0, slot -
// what its pods ask for). A slot's host port is free for the pods that use the slot, one at a time. Budgets (SetLimits)
// are the same sum over all nodes, of a namespace and of a caller. What turns from a slot into an allocation adds
// nothing.
//
// A decision (Reserve, StartBind) is granted only if, of every resource that it names with a value above 0, it adds to
// used at most what is free, and the pod count, host ports, devices and budgets allow it. A resource that is not
// named is not checked, even where the node is overcommitted on it. What has expired ends first.
//
// An observation (a method of Observer) is always recorded, even where it overcommits the node, unless it is older than
// what is known of its pod. Overcommit is reported (Stats, Nodes), and nothing more is granted there of that resource.
//
// # States of an allocation
//
//	(none) --StartBind--> Binding --Confirm/ObservePod--> Bound
//	   ^                     |  definite failure            |
//	   +------BindFailed-----+                              |
//	   +------RemovePod (deleted, or phase Succeeded or Failed)
//
// ObservePod makes a Bound allocation from any state, and moves it when the pod was bound to another node. Binding
// never expires: only the API server knows how it ended. A resize that is granted (Resize) counts beside what the pod
// is seen to ask for, the larger of the two, until a newer version of the pod is seen or it will not be written
// (SettleResize).
//
// # States of a slot
//
//	(none) --Reserve, ObserveSlot, RemovePodHolding--> kept --+
//	   +-- SlotConsumed:  policy Once, and its pod is bound <-+
//	   +-- SlotExpired:   deadline passed; while a bind in flight uses it, it is overdue and takes no new pods
//	   +-- SlotReleased:  ReleaseSlots, Unreserve; or kept for one pod alone, which is gone, was bound without it, or
//	   |                  is another scheduler's than it was kept for
//	   +-- SlotPreempted: a StartBind that may preempt took the capacity; all slots of the reservation end with it
//
// A slot in memory, for one pod alone, turns into the pod's allocation by StartBind. When another slot ends, the
// allocations that use it stay; when one of these ends before, its capacity is the slot's again.
//   - The ledger finds slots for one pod (Slot.Pod). The caller matches the others and names them in the Placement. No
//     pod of another namespace ever uses one. AllocatePolicy says how many may.
//   - The first of a pod's slots that will do is used, else free capacity. A movable slot, one in memory for a pod of a
//     gang, does not keep its pod from other nodes: a bind there that is granted ends it.
//   - On a cordoned node only pods that tolerate the cordon use a slot, and those with capacity kept there in memory.
//   - A pod that says it was bound with a slot uses that, in whichever order the two are observed.
//   - A device has one pod, or one slot, or is free. A pod keeps its devices while it asks for the same. Those of
//     a plan are given one after another, or else together. A claim serves one pod at a time. A slot for a pod that is
//     gone keeps the devices of its claims if each is of the resource that is asked for, else none; of what the pod
//     asked for by count, it keeps the count.
//   - Preemption ends whole reservations, all of whose slots are preemptible, of lower priority, and not being bound.
//     It spares all it can, those of higher priority first, and ends nothing where that would not help.
//   - For a pod that is nominated for a node (Nominate), less is free there to pods of lower priority and to slots.
//
// Assumptions these rules stand on: a pod is identified by its UID, by its name only before it exists, and a short
// memory of deleted UIDs detects late requests. A pod never goes back from bound to unbound. The same pod on the same
// node again is the same success; on another node it is a conflict that names where the pod is. For Reserve a slot for
// the pod alone counts as where it is; StartBind may bind it elsewhere, which gives that slot back. A renewal only puts
// deadlines off.
//
// What may be touched: a change of a rule changes its transcript in testdata and its law in test/ledgertest, too.
// Nothing in this package may import client-go, net/http or a logger.
package ledger
