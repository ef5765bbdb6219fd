package resources

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// statusOptions count an in-place resize, and what the devices of DRA take of the node's own resources, as
// kube-scheduler's node cache counts it.
var statusOptions = resourcehelper.PodResourcesOptions{
	UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	UseDRANodeAllocatableResourceClaimStatus: true,
}

// ForResizedPod returns what a pod on a node counts for, or may come to, if it is resized to be as it is given: the
// largest of what is asked, allocated and actuated. That its kubelet has found an earlier resize infeasible says
// nothing of this one. Like a pod that comes in, it may be one that the API server has not filled in yet. It returns an
// error that names the field when a quantity is negative or has no int64.
//
// grows says whether that is more, of anything, than the pod counts for before.
func ForResizedPod(t *Table, before, pod *v1.Pod) (request Request, grows bool, err error) {
	before, pod = asStored(before), asStored(pod)
	if err := checkQuantities(pod); err != nil {
		return Request{}, false, err
	}
	list := resourcehelper.PodRequests(withoutInfeasible(pod), statusOptions)
	has := countedList(before)
	for name, q := range list {
		grows = grows || q.Cmp(has[name]) > 0
	}
	request, err = counted(t, pod, list)
	return request, grows, err
}

// countedList is what a pod on a node counts for; see ForBoundPod.
func countedList(pod *v1.Pod) v1.ResourceList {
	if isStale(pod) {
		pod = withoutInfeasible(pod)
	}
	return resourcehelper.PodRequests(pod, statusOptions)
}

// withoutInfeasible returns a pod as if its kubelet had not looked at what it asks for yet.
func withoutInfeasible(pod *v1.Pod) *v1.Pod {
	if !resourcehelper.IsPodResizeInfeasible(pod) {
		return pod
	}
	fresh := *pod
	fresh.Status.Conditions = nil
	return &fresh
}

// isStale reports whether the kubelet has found infeasible what the pod asked for before, and not what it asks for now.
// The kubelet may find that feasible, at any time.
func isStale(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == v1.PodResizePending && c.Reason == v1.PodReasonInfeasible {
			return c.ObservedGeneration > 0 && c.ObservedGeneration < pod.Generation
		}
	}
	return false
}
