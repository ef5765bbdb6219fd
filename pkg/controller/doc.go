// Package controller holds the loops that act on their own, next to the
// requests the server answers:
//
//   - Expire releases reservations when their deadline passes.
//   - Wakeups makes kube-scheduler look again at a pod it was refused capacity for,
//     when capacity becomes free that no event it watches announces.
//
// # How a pod is woken
//
// refusals.go remembers the last refusal of every pending pod, and orders those
// that have something to look at. freed.go reads the ledger's changes and keeps
// where capacity became free. One loop (wakeups.go) brings the two together: for
// each refusal it notes which of that capacity would do. Another (wake.go) takes
// the refusals with notes, the highest priority first, looks whether the pod
// still fits, and has a few workers write to the API server.
//
// The first loop never waits for the API server, so it does not fall behind the
// ledger. What is noted for a pod is not lost before the pod was woken or was
// seen not to fit: a write that failed, a pod that has to pause and one that was
// refused again while it was being woken come back.
//
// What may be touched: each part has one Run and owns its goroutines. They
// see the cluster only through the ledger and the small interfaces declared here.
// Time is the time package's, so tests run them in a testing/synctest bubble.
package controller
