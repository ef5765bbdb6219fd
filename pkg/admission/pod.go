package admission

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// nodesGroup is the group of all kubelets.
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
	v := &verdict{ref: ledger.PodRef{Namespace: request.Namespace, Name: request.Name}, dryRun: isDryRun(request)}
	var pod v1.Pod
	if v.refusal = decode(request, &pod); v.refusal != nil {
		return v, nil
	}
	v.node = pod.Spec.NodeName
	if v.node == "" || isMirror(&pod, request) {
		return skip(v.ref, v.node), nil
	}
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
	info, refusal := a.count(incoming(&pod, request.Namespace))
	if v.pod, v.refusal = info, refusal; refusal != nil {
		return v, nil
	}
	var err error
	if v.refusal, err = a.checkName(ctx, v.ref); err != nil || v.refusal != nil {
		return v, err
	}
	asked := ask{placement: a.placement(info, v.node), create: true}
	if v.dryRun {
		v.refusal = a.tryOut(&asked.placement)
	} else {
		asked.grant, v.refusal = a.claim(ctx, &asked)
	}
	v.patch.annotate(pod.Annotations, a.told(info, &asked, v.dryRun))
	return v, nil
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
	return in
}

func generateName(base string) string {
	base = base[:min(len(base), maxGeneratedName-randomCharacters)]
	return base + utilrand.String(randomCharacters)
}

// checkName refuses a name that another pod has. The informer may show a pod
// that is gone already.
func (a *Admission) checkName(ctx context.Context, ref ledger.PodRef) (*refusal, error) {
	if _, ok := a.o.Pods.Pod(ref.Namespace, ref.Name); !ok {
		return nil, nil
	}
	_, err := a.get(ctx, ref)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, httpjson.Errorf(http.StatusServiceUnavailable, "it cannot be found out whether there is a pod %s: %s", ref, err)
	default:
		return refuse(http.StatusConflict, metav1.StatusReasonAlreadyExists, fmt.Sprintf("pod %s already exists", ref)), nil
	}
}
