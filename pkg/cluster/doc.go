// Package cluster keeps the ledger in step with the cluster.
//
// What lives here:
//   - Cache lists and watches pods and nodes, keeps each in a compact form for
//     lookups, and reports every change to the ledger in the order the API
//     server gave it.
//   - Reader makes the compact form of a pod, wherever one comes from.
//   - Pods are the pods in that form, and who is a member of which gang (members.go),
//     and who names which claims of devices (claimants.go). Nodes are the nodes.
//   - Comparer keeps checking the ledger against the cache, and against the API
//     server itself, and repairs what persists.
//
// # From API objects to observations
//
//	pod bound, phase not Succeeded or Failed   ObservePod (terminating pods too)
//	pod without a node                         ObserveUnbound, which releases no allocation
//	pod deleted, or Succeeded or Failed        RemovePod
//	   deleted, and Options.Keep wants that    RemovePodHolding
//	node                                       ObserveNode
//	node deleted                               RemoveNode, which also ends what is kept there in memory
//	other UID under a known name               the former object is removed first
//
// What is found missing after a gap in the watch is removed the same way.
//
// # Why not a SharedInformer
//
// Pods arrive at a cache.Reflector whose store is this package's own. A
// SharedInformer would put a queue with a second goroutine between the watch
// and the ledger, and keep each object under a key string of its own next to
// what this package needs. The Reflector calls the store in order, in one
// goroutine, and asks it for a transformer (cache.TransformingStore), so the
// objects that stream in at the start are made compact one by one: no two full
// v1.Pod need to be in memory at once. Where the server, or client-go's
// WatchListClient feature, does not stream, pods are listed in pages that are
// made compact page by page.
//
// # How far, and how fresh
//
// A watch may be behind, or dead without anybody being told. Cache.CatchUp waits until the ledger has
// what the API server has now. A server calls it before it begins to decide. Cache.Ages says how
// long ago anything was heard. A watch that is silent for too long is begun anew (follow.Pulse).
//
// # Locks
//
// Cache.apply makes a change of the stores and the ledger one step; only the
// reflectors and the Comparer's repairs take it, for one object at a time.
// Lookups take the read lock of one shard. Others are told of pods with no lock
// held.
//
// What may be touched: this package decides which facts lead to which observation.
// pkg/ledger decides what an observation does.
package cluster
