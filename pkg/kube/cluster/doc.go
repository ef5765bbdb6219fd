// Package cluster keeps the ledger in step with the pods and nodes of the cluster.
//
//   - Cache lists and watches pods and nodes, keeps them in a compact form, and reports every change to the ledger in
//     the order of the API server (docs/decisions/0002). CatchUp waits until the ledger has what the API server has
//     now.
//   - Reader makes the compact form of a pod, wherever one comes from.
//   - Pods and Nodes are what is known of them, members.go which pods are in which gang, claimants.go which pods name
//     which device claims.
//   - Comparer checks the ledger against the cache and the API server, and repairs what persists.
//
// What is seen, and the call that reports it to the ledger; what is missing after a gap in the watch was deleted:
//
//	pod bound, phase not Succeeded or Failed   ObservePod (terminating pods too)
//	pod without a node                         ObserveUnbound, which releases no allocation
//	pod deleted, or Succeeded or Failed        RemovePod
//	   deleted, and Options.Keep wants that    RemovePodHolding
//	node                                       ObserveNode
//	node deleted                               RemoveNode, which also ends what is kept there in memory
//	other UID under a known name               the former object is removed first
//
// Cache.apply makes a change of the stores and the ledger one step: only the reflectors and the Comparer's repairs take
// it, for one object at a time. Lookups take the read lock of one shard. Pods are reported to others with no lock held.
//
// What may be touched: this package decides which facts lead to which observation. pkg/ledger decides what one does.
package cluster
