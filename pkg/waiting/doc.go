// Package waiting has one record for each pod that waits for capacity, and brings these pods to it.
//
// A record comes to be when a pod is refused, by whatever path, and ends when the pod is bound or gone (Settled), when
// there is nothing to tell of it any more (tidy), or when there are too many (makeRoom). It has since when the pod
// waits and what it was refused for last (refusal.go), the attempt to schedule it that nothing has woken it for yet
// (attempt.go), the node it is meant for (plan.go), whether it may end preemptible slots (preemptor.go), and when it is
// told by an Event again (notices.go). Beside them the latest refusals of all pods are kept (latest.go).
//
// # How a pod is woken
//
// freed.go reads the ledger's changes and keeps where capacity became free. One loop (wakeups.go) brings that and the
// attempts together: for each attempt it notes which of that capacity would do. Another (wake.go) takes the attempts
// with notes, the highest priority first, looks whether the pod still fits, and has a few workers write to the API
// server.
//
// The first loop never waits for the API server, so it does not fall behind the ledger. What is noted for a pod is not
// lost before the pod was woken or was seen not to fit: a write that failed, a pod that has to pause and one that was
// refused again while it was being woken come back.
//
// A pod that evictions did not help (/preempt) is woken in another way, as its scheduler's own filters have refused it
// (preemptor.go).
//
// # How a pod is steered
//
// A ledger that merely knows of a matching slot is not enough. kube-scheduler looks at a sample of the nodes where
// there are more than a hundred, so it may never ask about the node that holds the capacity. It also schedules the next
// pod while the last one is still being bound, so that two pods choose the same slot and another stays unused.
//
// So a pod is planned for one slot, and a slot that only one pod can use for one pod. Filter then keeps the planned
// node alone. If the scheduler did not offer that node, filter refuses all others once and the pod's
// status.nominatedNodeName is set to it: kube-scheduler tries that node before all others (kubernetes
// pkg/scheduler/schedule_one.go, evaluateNominatedNode), and takes the change itself for a reason to try the pod again.
// (Releases before 1.32 take only changes outside of the status for one, so the write has an annotation, too.) The
// write waits a moment, because kube-scheduler clears the field when an attempt fails, and that attempt is still
// ending.
//
// A plan is a preference and no duty: after a few attempts that did not end in a binding the pod is offered every node
// again (attempts of a scheduler that has not seen the nomination yet count only after some seconds), and a plan nobody
// renews stops keeping others away. Where all candidates were offered and the planned node is not among them,
// kube-scheduler's own filters refuse it, and nothing is done.
//
// A pod that is refused by all nodes of a sample is sent to free capacity in the same way (free.go): when its attempt
// is over, all nodes are searched for one that the ledger has capacity on, and that the pod selects and tolerates. What
// pods were sent to lately counts as theirs there, so that two do not meet in one gap. A node that the scheduler then
// refuses is followed by another one, after a pause that grows. What other pods, volumes or DRA claims say of a node
// the server cannot judge: such a pod is woken instead, because the scheduler looks at another sample each time. A
// nomination that is not ours belongs to preemption and is left alone.
//
// A nomination is cleared when the pod can use the slot no more and is not bound. What was nominated before a restart
// is forgotten: kube-scheduler clears it at its next failed attempt. Only pods that a scheduler asked about are
// steered, because only then is it known that the scheduler asks and will ask again.
//
// # How a pod is told
//
// An Event on the pod says which reservation keeps the capacity it lacks, which limit it is over, what is wrong with
// its claims of devices, why it has to wait for its gang, or that its scheduler repeats a Binding that is refused
// (notices.go). Filter's own reasons are constant texts and name nobody, because schedulers copy them into the pods'
// conditions.
//
// What may be touched: there is one lock, and nobody asks the ledger with the lock held, because a search takes the
// lock with the ledger's held. Run owns all goroutines. The memory is bounded in pods.go. Nothing here outlives the
// process. Time is the time package's, so tests run in a testing/synctest bubble.
package waiting
