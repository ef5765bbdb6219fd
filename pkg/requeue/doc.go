// Package requeue has one record for each pod that waits for capacity, from its first refusal by any path until it is
// bound or gone, and brings these pods to capacity.
//
//   - A record (refusal.go) has since when the pod waits, what it was refused for last, the attempt that nothing has
//     woken it for yet (attempt.go), its plan (plan.go), whether it may end preemptible slots (preemptor.go), and when
//     the next Event on it is due (notices.go). latest.go keeps the latest refusals of all pods.
//   - freed.go keeps where capacity became free. One loop (wakeups.go) notes for each attempt which of it would do, and
//     never waits for the API server. Another (wake.go) wakes pods with notes, the highest priority first. A note stays
//     until the pod was woken or was seen not to fit.
//   - kube-scheduler looks at a sample of the nodes. So a pod is planned for one slot: filter keeps that node alone, or
//     status.nominatedNodeName is set to it, which kube-scheduler tries first (kubernetes
//     pkg/scheduler/schedule_one.go, evaluateNominatedNode). The write waits a moment, as kube-scheduler clears the
//     field when an attempt fails, and has an annotation, as releases before 1.32 try a pod again only for changes
//     outside of the status.
//   - A plan is a preference: after a few failed attempts the pod is offered every node again. A pod that all nodes of
//     a sample refuse is sent to free capacity in the same way (free.go). A nomination that is not ours is left alone.
//
// What may be touched: there is one lock, and nobody asks the ledger with the lock held, because a search takes the
// lock with the ledger's held. Run owns all goroutines. The memory is bounded in pods.go. Nothing here outlives the
// process. Filter's reasons are constant texts; only Events name who has the capacity. Time is the time package's, so
// tests run in a testing/synctest bubble.
package requeue
