// Package resources turns what Kubernetes objects say about capacity into plain
// integers, in exactly the units kube-scheduler's NodeResourcesFit plugin uses.
//
// What lives here:
//   - Table: gives every resource name a small column number, so that the
//     ledger can keep a node's amounts in a short row of int64.
//   - Request: what one pod asks of one node (amounts and host ports), made from
//     a pod by ForIncomingPod (spec only) or ForBoundPod (in-place resize
//     included).
//   - Allocatable: what one node offers.
//   - HostPort and its collision rule.
//   - saturating arithmetic, for objects that are not validated.
//
// Units: CPU in milli-CPU, every other resource in its own unit (bytes, or a
// count), rounded up once per pod after an exact sum.
//
// The package knows nothing of the ledger and keeps no state but the Table. A change of a rule here must be matched by
// the agreement test, which compares the answers with the in-tree scheduler plugins.
package resources
