// Package ledger keeps the one account of node capacity that every scheduler of
// a cluster reserves from. It answers "is there still room for this pod on this
// node?" atomically, remembers what it promised and never promises the same
// room twice.
//
// It is a pure state machine: no I/O, no goroutines, no clock (now is a
// parameter), no logging. One Ledger, one lock, safe for concurrent use.
// Adapters around it speak HTTP, watch the API server and bind pods.
//
// # What it holds
//
// A node (its allocatable amounts), and claims: each is one pod's share of one
// node. For every node n and resource r
//
//	used(n,r) = sum of req(p,r) over the claims of pods p on n
//
// and host ports and the pod count follow the same sum.
//
// # Decisions and observations
//
// A decision (Reserve, StartBind) is granted only if for every resource the
// request names with a value above 0, used + req <= allocatable, the pod count
// fits and no host port collides. A resource the request does not name is not
// checked, even where the node is overcommitted on it.
//
// An observation (ObservePod, ObserveNode, RemoveNode, RemovePod) is always
// recorded, even where it overcommits the node: truth wins. Overcommit is
// reported (Stats, Nodes), never hidden, and nothing new is granted there on
// that resource.
//
// # States of a claim
//
//	(none) --Reserve--> Reserved --StartBind--> Binding --Confirm/ObservePod--> Bound
//	   ^                   |  deadline passed       |  definite failure            |
//	   +------Expire-------+                        |                              |
//	   +------Unreserve----+                        |                              |
//	   +------BindFailed----------------------------+                              |
//	   +------RemovePod (deleted, or phase Succeeded or Failed)--------------------+
//
//	StartBind without a reservation makes the claim in the same step.
//	ObservePod makes a Bound claim from any state, also from (none), and moves
//	the claim when the pod was bound to another node than the claim's.
//
// Assumptions these rules stand on:
//   - A pod is identified by its UID; by namespace and name only while it does
//     not exist yet. The first decision granted to the pod, or observation of
//     it, that names its UID gives the claim that UID. A pod that is gone never
//     gets the claim made for its successor's name.
//   - A pod never goes back from bound to unbound, so an observation that shows
//     it unbound is old and releases nothing.
//   - A pod on the same node again is the same success; on another node it is a
//     conflict that names where the pod is.
//   - A reservation is redeemed only while the node still has room for it: the
//     kubelet would reject the pod. Cordoning the node does not matter.
//   - A renewal only ever puts a deadline off; no deadline is the latest of all.
//   - Binding never expires: only the API server knows how it ended.
//   - A Bound claim goes only by an observation.
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
