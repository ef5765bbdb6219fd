package admission

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// decideResize decides on the resize of a pod.
func (a *Admission) decideResize(ctx context.Context, request *admissionv1.AdmissionRequest) (*verdict, error) {
	v := newVerdict(request)
	var before, asked v1.Pod
	if v.refusal = decode(request.OldObject.Raw, &before); v.refusal == nil {
		v.refusal = decode(request.Object.Raw, &asked)
	}
	if v.refusal != nil {
		return v, nil
	}
	before.Namespace = request.Namespace
	v.ref.UID, v.node = before.UID, before.Spec.NodeName
	resized, refusal := resize(&before, &asked)
	if v.refusal = refusal; refusal != nil {
		return v, nil
	}
	said, err := a.o.Arbiter.AdmitResize(v.traced(ctx), &decide.ResizeQuery{
		Before: &before, Pod: resized,
		DryRun: v.dryRun, User: request.UserInfo.Username,
	})
	v.skipped = said.Undecided
	err = v.found(said.Pod, err)
	return v, err
}

// resize returns a pod as the API server writes it: of a resize it keeps the resources, and drops all else.
func resize(before, asked *v1.Pod) (*v1.Pod, *metav1.Status) {
	switch {
	case before.Name == "" || before.UID == "" || len(before.UID) > maxName:
		return nil, invalid("the object under review is a resize of no pod: oldObject has no metadata.name or metadata.uid")
	case !sameContainers(before.Spec.Containers, asked.Spec.Containers) ||
		!sameContainers(before.Spec.InitContainers, asked.Spec.InitContainers):
		return nil, invalid(fmt.Sprintf("pod %s/%s: a resize must not add, remove, rename or reorder containers",
			before.Namespace, before.Name))
	}
	resized := *before
	resized.Spec.Containers = withResources(before.Spec.Containers, asked.Spec.Containers)
	resized.Spec.InitContainers = withResources(before.Spec.InitContainers, asked.Spec.InitContainers)
	if asked.Spec.Resources != nil { // left out, they stay
		resized.Spec.Resources = asked.Spec.Resources
	}
	if resources.ExceedsWhole(&resized) {
		resized.Spec.Resources = nil // where it is resized at all
	}
	return &resized, nil
}

func sameContainers(a, b []v1.Container) bool {
	return slices.EqualFunc(a, b, func(x, y v1.Container) bool { return x.Name == y.Name })
}

// withResources are containers with the resources of others.
func withResources(containers, others []v1.Container) []v1.Container {
	containers = slices.Clone(containers)
	for i := range containers {
		containers[i].Resources = others[i].Resources
	}
	return containers
}
