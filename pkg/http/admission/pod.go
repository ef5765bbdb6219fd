package admission

import (
	"cmp"
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// nodesGroup is the group of users that all kubelets belong to.
const nodesGroup = "system:nodes"

// planPod says what a pod that is to be created with a node would be given, and writes that into the pod. Afterwards
// the API server fills in and checks the rest, and asks about the resulting pod (decidePod).
func (a *Admission) planPod(ctx context.Context, request *admissionv1.AdmissionRequest) (*verdict, error) {
	v, pod := readPod(request)
	if pod == nil {
		v.patch.disownUnread(request.Object.Raw)
		return v, nil
	}
	if v.node == "" {
		v.skipped = true
		return v, nil
	}
	pod.Annotations = v.patch.disown(pod.Annotations)
	if v.skipped = isMirror(pod, request); v.skipped {
		return v, nil
	}
	v.planned = true
	if a.o.Arbiter.AdmissionWarns() { // it is created whatever decidePod says, and then says nothing that may be untrue
		return v, nil
	}
	if resources.ExceedsWhole(pod) {
		pod.Spec.Resources = nil // where it is created at all
	}
	said, err := a.o.Arbiter.PlanPod(v.traced(ctx), unplaced(pod), v.node, request.UserInfo.Username, v.dryRun)
	v.patch.annotate(pod.Annotations, said.Annotations)
	err = v.found(said.Pod, err)
	return v, err
}

// decidePod decides on a pod that the API server is about to create with a node. The API server has checked the pod,
// and will store it as it is. A quota, or another webhook that is asked at the same time, may still refuse it.
func (a *Admission) decidePod(ctx context.Context, request *admissionv1.AdmissionRequest) (*verdict, error) {
	v, pod := readPod(request)
	switch {
	case pod == nil:
		return v, nil
	case request.Resource.Resource != "pods" || request.SubResource != "" || request.Operation != admissionv1.Create:
		v.skipped = true
		v.warning = "GlobalReserve decides here on the creation of pods only: correct the rules of its webhook configuration"
		return v, nil
	case v.node == "" || isMirror(pod, request):
		v.skipped = true
		return v, nil
	case pod.UID == "" || len(pod.UID) > maxName || pod.Name == "":
		v.refusal = invalid("the object under review has no metadata.uid or metadata.name: GlobalReserve has to be asked " +
			"by a validating webhook")
		return v, nil
	}
	said, err := a.o.Arbiter.AdmitPod(v.traced(ctx), unplaced(pod), v.node, request.UserInfo.Username, v.dryRun)
	err = v.found(said.Pod, err)
	return v, err
}

// readPod returns the pod under review, or nil and why it is refused.
func readPod(request *admissionv1.AdmissionRequest) (*verdict, *v1.Pod) {
	v := newVerdict(request)
	var pod v1.Pod
	if v.refusal = decode(request.Object.Raw, &pod); v.refusal != nil {
		return v, nil
	}
	if v.node = pod.Spec.NodeName; len(v.node) > maxName {
		v.refusal = invalid("spec.nodeName is not the name of a node: " + httpjson.Clip(v.node))
		return v, nil
	}
	pod.Namespace = request.Namespace
	v.ref.Name, v.ref.UID = cmp.Or(pod.Name, pod.GenerateName), pod.UID
	return v, &pod
}

// isMirror reports whether the kubelet shows a pod it runs already. Anybody can
// write the annotation, so it counts from kubelets only.
func isMirror(pod *v1.Pod, request *admissionv1.AdmissionRequest) bool {
	_, marked := pod.Annotations[v1.MirrorPodAnnotationKey]
	return marked && slices.Contains(request.UserInfo.Groups, nodesGroup)
}

// unplaced is the part of a pod under review that counts: as it would be if it had been created without a node.
func unplaced(pod *v1.Pod) *v1.Pod {
	in := &v1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	in.ResourceVersion, in.DeletionTimestamp, in.Spec.NodeName = "", nil, ""
	return in
}
