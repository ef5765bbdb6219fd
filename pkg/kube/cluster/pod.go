package cluster

import (
	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Pod is the compact form of a pod: which it is, who schedules it, where it is and what it counts for. All pods of a
// cluster are kept in memory in this form, so a field belongs here only if a decision, a log line or an answer needs it
// for every pod. It is not changed once made, so it may be shared.
type Pod struct {
	Ref ledger.PodRef
	// ResourceVersion orders states of the same pod; 0 where the pod did not come from the API server.
	ResourceVersion uint64
	Created         int64  // Unix seconds; the time to bind is counted from here
	Node            string // spec.nodeName; empty until bound
	Scheduler       string // spec.schedulerName
	Caller          string // the caller whose request bound the pod, or that asks about a pod without a node
	Priority        int32
	Finished        bool // phase Succeeded or Failed: it uses nothing any more
	Deleting        bool // has a deletionTimestamp: it uses its capacity until it is gone
	Gated           bool // has a scheduling gate: it cannot be bound
	// Nominated is status.nominatedNodeName of a pod that may be bound there.
	Nominated string
	// Mirror: it only shows what a kubelet runs from a file on its node (a static
	// pod), which no scheduler is asked about.
	Mirror bool
	// Preempted: the scheduler deletes the pod to make capacity for another one
	// (condition DisruptionTarget, reason PreemptionByScheduler).
	Preempted  bool
	Scheduling Scheduling
	// Request is what the pod counts for: while it has no node by its spec, then by spec and status (in-place resize).
	Request *resources.Request
	// Claiming is what a pod without a node counts for as soon as it has one, where its status says that its
	// ResourceClaims take some of the node's own resources; nil for nearly all pods.
	Claiming *resources.Request
	// HasClaims: a pod without a node names ResourceClaims. Its scheduler writes what they are given into its status just
	// before it binds the pod.
	HasClaims bool
	// Controller is what controls the pod: for a Deployment's pods the Deployment, not the ReplicaSet.
	Controller Controller
	// Annotations are the pod's annotations of reservations; nil for nearly all pods.
	Annotations *Annotations
	// Devices are the pod's annotations of devices; nil for nearly all pods.
	Devices *DeviceAnnotations
	// Gang is what the pod says of the gang it is a member of; nil for nearly all pods. A pod that failed is of no use to
	// its gang, and is no member any more.
	Gang *kinds.Mark
	// Labels are the pod's labels as long as it has no node: they choose the reservations it may use.
	Labels map[string]string
	// Constraints are what the pod asks of nodes beside capacity, as long as it has none.
	Constraints *Constraints

	repels []repulsion // the pods that it keeps away; nil for nearly all pods

	err error // why the request cannot be counted; nil for nearly all
}

// Scheduling is what the condition PodScheduled says of a pod that has no node.
type Scheduling uint8

// What the condition PodScheduled may say.
const (
	NotTried      Scheduling = iota // nothing, or something else than the next two
	Unschedulable                   // its scheduler found no node for it; autoscalers make nodes for such pods
	HeldBack                        // the same, with the reason v1alpha1.PodReasonHeldBack
)

// Reader reads pods: it makes their compact form.
type Reader struct {
	// Table has the columns that requests are counted in.
	Table *resources.Table
	// Gangs says which pods are members of gangs; with nil none is.
	Gangs *kinds.Table
}

// NewPod makes the compact form of a pod. It returns an error, saying which field is wrong, for a pod without a node
// whose requests are negative or too large to count.
func (r Reader) NewPod(pod *v1.Pod) (*Pod, error) {
	info := &Pod{
		Ref:       ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Node:      pod.Spec.NodeName,
		Scheduler: kinds.Clip(pod.Spec.SchedulerName, maxText),
		Priority:  corev1helpers.PodPriority(pod),
		Finished:  pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed,
		Deleting:  pod.DeletionTimestamp != nil,
		Gated:     len(pod.Spec.SchedulingGates) > 0,

		ResourceVersion: ParseVersion(pod.ResourceVersion),

		Created:     max(pod.CreationTimestamp.Unix(), 0),
		Preempted:   preempted(pod),
		Scheduling:  schedulingOf(pod),
		Controller:  controllerOf(pod),
		Annotations: ReadAnnotations(pod.Namespace, pod.Annotations),
		Devices:     ReadDeviceAnnotations(pod),
		repels:      repulsionsOf(pod),
	}
	if pod.Status.Phase != v1.PodFailed {
		info.Gang = r.Gangs.Mark(pod)
	}
	_, info.Mirror = pod.Annotations[v1.MirrorPodAnnotationKey]
	if info.Node != "" {
		info.Caller = kinds.Clip(pod.Annotations[v1alpha1.CallerAnnotation], maxCaller)
		request := resources.ForBoundPod(r.Table, pod)
		info.Request = &request
		return info, nil
	}
	request, err := resources.ForIncomingPod(r.Table, pod)
	if err != nil {
		return nil, err
	}
	if info.Request = &request; !info.Deleting && !info.Gated {
		info.Nominated = pod.Status.NominatedNodeName
	}
	if len(pod.Status.NodeAllocatableResourceClaimStatuses) > 0 {
		claiming, err := resources.ForClaimingPod(r.Table, pod)
		if err != nil {
			return nil, err
		}
		info.Claiming = &claiming
	}
	info.HasClaims = len(pod.Spec.ResourceClaims) > 0
	info.Labels, info.Constraints = fewLabels(pod.Labels), constraintsOf(pod)
	return info, nil
}

func preempted(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue {
			return c.Reason == v1.PodReasonPreemptionByScheduler
		}
	}
	return false
}

func schedulingOf(pod *v1.Pod) Scheduling {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		switch {
		case c.Type != v1.PodScheduled || c.Status != v1.ConditionFalse:
		case c.Reason == v1.PodReasonUnschedulable:
			return Unschedulable
		case c.Reason == v1alpha1.PodReasonHeldBack:
			return HeldBack
		}
	}
	return NotTried
}

// Bound reports whether the pod uses capacity on a node; nil, of a pod that is gone, uses none.
func (i *Pod) Bound() bool { return i != nil && i.Node != "" && !i.Finished }

// WithCaller returns the pod as a caller asks about it; that caller pays for it.
func (i *Pod) WithCaller(caller string) *Pod {
	if i.Node != "" || i.Caller == caller {
		return i
	}
	asked := *i
	asked.Caller = caller
	return &asked
}

// Placement returns a request for capacity for the pod on a node, or anywhere where node is empty.
func (i *Pod) Placement(node string) ledger.Placement {
	p := ledger.Placement{
		Pod: i.Ref, Node: node, Request: i.Request, Scheduler: i.Scheduler, Caller: i.Caller, Priority: i.Priority,
	}
	if i.Claiming != nil && node != "" {
		p.Request = i.Claiming
	}
	return p
}

// Observation returns what the ledger records of the pod once it is bound.
func (i *Pod) Observation() ledger.PodObservation {
	return ledger.PodObservation{
		Pod: i.Ref, Node: i.Node, Request: i.Request, Scheduler: i.Scheduler, Caller: i.Caller,
		Priority: i.Priority, ResourceVersion: i.ResourceVersion, Slot: i.Matched(),
		SlotUID: i.matchedUID(),
	}
}
