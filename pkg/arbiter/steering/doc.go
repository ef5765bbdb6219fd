// Package steering brings pods to the nodes that have capacity for them, reserved or free.
//
// A ledger that merely knows of a matching slot is not enough. kube-scheduler
// looks at a sample of the nodes where there are more than a hundred, so it may
// never ask about the node that holds the capacity; and it schedules the next pod
// while the last one is still being bound, so that two pods choose the same slot
// and another stays unused.
//
// So a pod is planned for one slot, and a slot that only one pod can use for one
// pod. Filter then keeps the planned node alone. If the scheduler did not offer
// that node, filter refuses all others once and the pod's
// status.nominatedNodeName is set to it: kube-scheduler tries that node before
// all others (kubernetes pkg/scheduler/schedule_one.go, evaluateNominatedNode),
// and takes the change itself for a reason to try the pod again. (Releases before 1.32 take only
// changes outside of the status for one, so the write has an annotation, too.) The write waits
// a moment, because kube-scheduler clears the field when an attempt fails, and
// that attempt is still ending.
//
// A plan is a preference and no duty: after a few attempts that did not end in a
// binding the pod is offered every node again (attempts of a scheduler that has not seen the nomination
// yet count only after some seconds), and a plan nobody renews stops keeping others away. Where all candidates were offered and the planned node is
// not among them, kube-scheduler's own filters refuse it, and nothing is done.
//
// A pod that is refused by all nodes of a sample is sent to free capacity in the same way (free.go): when its
// attempt is over, all nodes are searched for one that the ledger has capacity on, and that the pod selects and
// tolerates. What pods were sent to lately counts as theirs there, so that two do not meet in one gap. A node
// that the scheduler then refuses is followed by another one, after a pause that grows. What other pods,
// volumes or DRA claims say of a node the server cannot judge: such a pod is woken instead, because the
// scheduler looks at another sample each time. A nomination that is not ours belongs to preemption and is left alone.
//
// A nomination is cleared when the pod can use the slot no more and is not bound.
// What was nominated before a restart is forgotten: kube-scheduler clears it at
// its next failed attempt.
//
// Only pods that a scheduler asked about are steered, because only then is it
// known that the scheduler asks and will ask again.
package steering
