// Package extender answers the four verbs of the scheduler extender protocol (k8s.io/kube-scheduler/extender/v1):
// POST /filter, /prioritize, /preempt and /bind. Unmodified kube-schedulers reserve from the ledger through it.
// filter, prioritize and preempt are advice; bind is where a decision becomes true.
//
// Facts of kubernetes pkg/scheduler (extender.go, schedule_one.go and framework/preemption) that the handlers respect:
//
//   - It throws away the body of any answer but a 200. So a refusal is a 200, and a 4xx means only that the request
//     was malformed.
//   - The reason of a refused node goes into the pod's condition, so it is one of a few constant texts
//     (pkg/placement, refusals.go).
//   - Nodes in FailedNodes are candidates for preemption, nodes in FailedAndUnresolvableNodes are not.
//   - A prioritize that fails is ignored; a filter or preempt that fails ends the attempt to schedule the pod. Its
//     condition says SchedulerError then, where one that all nodes refuse is Unschedulable. Autoscalers make nodes
//     for pods that are Unschedulable, so one that a limit keeps from all nodes is answered by an Error.
//   - A node that preempt answers without a victim fails the whole preemption, and so does a victim that is not
//     there.
//
// filter is called once per attempt to schedule a pod, with hundreds of node names: they are not copied one by one,
// the pod is decoded only where the API server has no such pod or cannot be read, and the answer is streamed.
//
// What may be touched: how requests are read and answers are written. pkg/decide says what is decided, and on which
// pod.
package extender
