package drain

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// makers are the kinds, with their groups, that make another pod for one that is evicted.
var makers = map[string]string{
	"ReplicaSet": "apps", "StatefulSet": "apps", "Job": "batch", "ReplicationController": "",
}

// makesAnother reports whether the controller of a pod is known to make another one.
func makesAnother(by *metav1.OwnerReference) bool {
	of, err := schema.ParseGroupVersion(by.APIVersion)
	group, known := makers[by.Kind]
	return known && err == nil && group == of.Group
}

// list returns the pods of the nodes, as far as they can be told without the ledger.
func (p *Planner) list(ctx context.Context, q *reserver.DrainPlanRequest) ([]*Pod, error) {
	var pods []*Pod
	for _, node := range q.Nodes {
		if _, ok := p.o.Nodes.Node(node); !ok {
			return nil, fmt.Errorf("%w %q", ErrUnknownNode, node)
		}
		listed, err := p.o.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
		})
		if err != nil {
			return nil, fmt.Errorf("listing the pods of node %q: %w", node, err)
		}
		for i := range listed.Items {
			pods = append(pods, p.read(&listed.Items[i], q))
		}
	}
	return pods, nil
}

// read returns what is planned for a pod, but for its place.
func (p *Planner) read(pod *v1.Pod, q *reserver.DrainPlanRequest) *Pod {
	next := p.o.Question.Reader.Compact(replacement(pod))
	out := &Pod{Next: next, DrainPod: reserver.DrainPod{
		Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Node: pod.Spec.NodeName,
		OwnerKind: next.Controller.Kind, OwnerName: next.Controller.Name,
		Scheduler: next.Scheduler, Priority: next.Priority,
	}}
	if out.Action, out.Why = actionOf(pod, q); out.Action != reserver.DrainMove {
		return out
	}
	switch {
	case next.Controller == cluster.Controller{}:
		out.Unmanaged, out.Why = true, "nothing controls it, so no other pod is made for it"
	case next.HasClaims:
		out.Why = "it has ResourceClaims, and nothing of DRA is kept for a pod to come"
	case next.Devices.Asks():
		out.Why = "it claims devices, and none are kept for a pod to come"
	}
	if by := metav1.GetControllerOf(pod); by != nil && !makesAnother(by) {
		out.Unmanaged = true
		out.Warnings = append(out.Warnings, fmt.Sprintf("it is not known whether a %s makes another pod for it", by.Kind))
	}
	out.warn(pod)
	return out
}

// replacement is a pod as it is made again: with no node, and nothing that has become of it. Which name it gets is not
// known, or it is the name of a pod that is there still.
func replacement(pod *v1.Pod) *v1.Pod {
	next := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences,
		},
		Spec: pod.Spec,
	}
	next.Spec.NodeName = ""
	return next
}

// actionOf says what a drain does with a pod, and why it needs no place. The rules are those of kubectl drain: the pods
// of DaemonSets and those of a kubelet's own files stay.
func actionOf(pod *v1.Pod, q *reserver.DrainPlanRequest) (action reserver.DrainAction, why string) {
	owner := metav1.GetControllerOf(pod)
	_, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	switch {
	case mirror:
		return reserver.DrainStay, "it is a static pod"
	case owner != nil && owner.Kind == "DaemonSet":
		return reserver.DrainStay, "it is of a DaemonSet"
	case len(q.Pods) > 0 && !slices.Contains(q.Pods, string(pod.UID)):
		return reserver.DrainStay, "it is not asked for"
	case slices.Contains(q.SkipNamespaces, pod.Namespace):
		return reserver.DrainStay, "its namespace is skipped"
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		return reserver.DrainEnd, "it has finished"
	case pod.DeletionTimestamp != nil:
		return reserver.DrainEnd, "it is being deleted"
	default:
		return reserver.DrainMove, ""
	}
}

// warn adds what is lost with a pod, and what of it is not looked at.
func (p *Pod) warn(pod *v1.Pod) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.EmptyDir != nil && v.EmptyDir.Medium != v1.StorageMediumMemory:
			p.Warnings = append(p.Warnings, fmt.Sprintf("what is in its emptyDir %s is lost", v.Name))
		case v.HostPath != nil:
			p.Warnings = append(p.Warnings, fmt.Sprintf("its volume %s is a hostPath of this node", v.Name))
		}
	}
	if others := p.Next.Constraints.Others(); others != "" && p.Why == "" {
		p.Warnings = append(p.Warnings, fmt.Sprintf("it has %s: its scheduler may find that the place does not suit", others))
	}
}
