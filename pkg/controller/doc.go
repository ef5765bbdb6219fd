// Package controller holds the loops that act on their own, next to the
// requests the server answers:
//
//   - Expirer releases reservations when their deadline passes.
//   - Wakeups makes kube-scheduler look again at a pod it was refused room for,
//     when room becomes free that no event it watches announces.
//
// Each loop has Start and Stop and owns its goroutine. They see the cluster
// only through the ledger and the small interfaces declared here. Time is the
// time package's, so tests run them in a testing/synctest bubble.
package controller
