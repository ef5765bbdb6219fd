package admission

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// nodesGroup is the gang of all kubelets.
const nodesGroup = "system:nodes"

// A generated name is at most as long as a host name may be, which is what the
// API server keeps to, and has twice as many random characters as its own: the
// API server does not try again with another name where it did not choose it.
const (
	maxGeneratedName = validation.DNS1123LabelMaxLength
	randomCharacters = 10
)

// decidePod decides on the creation of a pod that has a node already.
func (a *Admission) decidePod(ctx context.Context, request *admissionv1.AdmissionRequest) (*verdict, error) {
	v := newVerdict(request)
	var pod v1.Pod
	if v.refusal = decode(request.Object.Raw, &pod); v.refusal != nil {
		return v, nil
	}
	if v.node = pod.Spec.NodeName; v.node == "" {
		v.skipped = true
		return v, nil
	}
	pod.Annotations = v.patch.disown(pod.Annotations)
	if isMirror(&pod, request) {
		v.skipped = true
		return v, nil
	}
	refused := v.patch // with a warning it is created all the same
	if pod.Name == "" && pod.GenerateName != "" {
		pod.Name = generateName(pod.GenerateName)
		v.patch.set("/metadata/name", pod.Name)
	}
	v.ref.Name = pod.Name
	switch {
	case len(validation.IsDNS1123Subdomain(pod.Name)) > 0:
		v.refusal = invalid("metadata.name is not the name of a pod: " + httpjson.Clip(pod.Name))
		return v, nil
	case len(v.node) > maxName:
		v.refusal = invalid("spec.nodeName is not the name of a node: " + httpjson.Clip(v.node))
		return v, nil
	}
	said, err := a.o.Arbiter.AdmitPod(v.traced(ctx), incoming(&pod, request.Namespace), v.node, request.UserInfo.Username, v.dryRun)
	v.patch.annotate(pod.Annotations, said.Annotations)
	if err = v.found(said.Pod, err); v.refusal != nil {
		v.patch = refused
	}
	return v, err
}

// isMirror reports whether the kubelet shows a pod it runs already. Anybody can
// write the annotation, so it counts from kubelets only.
func isMirror(pod *v1.Pod, request *admissionv1.AdmissionRequest) bool {
	_, marked := pod.Annotations[v1.MirrorPodAnnotationKey]
	return marked && slices.Contains(request.UserInfo.Groups, nodesGroup)
}

// incoming is the part of a pod under review that counts: as it would be if it
// had been created without a node.
func incoming(pod *v1.Pod, namespace string) *v1.Pod {
	in := &v1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	in.Namespace, in.UID, in.ResourceVersion, in.DeletionTimestamp = namespace, "", "", nil
	in.Spec.NodeName = ""
	if resources.ExceedsWhole(in) {
		in.Spec.Resources = nil // where it is created at all
	}
	return in
}

func generateName(base string) string {
	base = base[:min(len(base), maxGeneratedName-randomCharacters)]
	return base + utilrand.String(randomCharacters)
}
