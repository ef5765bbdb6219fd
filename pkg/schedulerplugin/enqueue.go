package schedulerplugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// EventsToRegister implements fwk.EnqueueExtensions. The ledger reports freed capacity to the waker; a pod that other
// plugins have refused besides may need the event, which may reach the ledger later than the scheduler. So a hint says
// whether an event could help, and leaves it to Filter whether it does.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	pods := fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete | fwk.UpdatePodScaleDown}
	// A node that is uncordoned loses a taint.
	nodes := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeTaint}
	// The pod's labels choose the reservations it may use.
	pod := fwk.ClusterEvent{
		Resource:   fwk.TargetPod,
		ActionType: fwk.UpdatePodScaleDown | fwk.UpdatePodToleration | fwk.UpdatePodLabel,
	}
	return []fwk.ClusterEventWithHint{
		{Event: pods, QueueingHintFn: p.afterPod},
		{Event: nodes, QueueingHintFn: p.afterNode},
		{Event: pod},
	}, nil
}

// afterPod says whether a pod may fit after another one has ended or asks for less.
func (p *Plugin) afterPod(_ klog.Logger, pod *v1.Pod, before, _ any) (fwk.QueueingHint, error) {
	if gone, ok := before.(cache.DeletedFinalStateUnknown); ok {
		before = gone.Obj
	}
	// A pod that is barred is woken when it is let in. One without a node had no capacity to give back.
	if other, ok := before.(*v1.Pod); p.waker.waiting.IsBarred(pod.UID) || ok && other.Spec.NodeName == "" {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// afterNode says whether a pod may fit after a node has changed: not where the node could not take it if it were empty.
func (p *Plugin) afterNode(_ klog.Logger, pod *v1.Pod, _, after any) (fwk.QueueingHint, error) {
	if p.waker.waiting.IsBarred(pod.UID) {
		return fwk.QueueSkip, nil // it is woken when it is let in
	}
	node, ok := after.(*v1.Node)
	if !ok {
		return fwk.Queue, nil
	}
	info, err := p.read(pod)
	if err != nil || node.Spec.Unschedulable && !info.Request.ToleratesUnschedulable {
		return fwk.QueueSkip, nil //nolint:nilerr // no node takes a pod that cannot be counted
	}
	return fwk.Queue, nil
}
