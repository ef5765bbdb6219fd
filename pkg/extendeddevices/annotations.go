package extendeddevices

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// reasonRestored is of Events on pods whose annotations are put back.
const reasonRestored = "DeviceAnnotationsRestored"

// AnnotationsChanged is called with a bound pod whose annotations of devices somebody has changed. The ledger keeps to
// what the pod was bound with, but after a restart it would believe the annotations: so they are put back.
func (c *Controller) AnnotationsChanged(pod *cluster.Pod) {
	if marks, ok := c.wanted(pod.Ref); ok && !marks.Same(pod.Devices) {
		c.queue.Add(object{pod.Ref.Namespace, pod.Ref.Name, pod.Ref.UID})
	}
}

// wanted returns what a bound pod has to say of its devices; ok is false where that is not known.
func (c *Controller) wanted(pod ledger.PodRef) (marks *cluster.DeviceAnnotations, ok bool) {
	view, ok := c.Ledger.Allocation(pod)
	if !ok || view.Pod != pod || view.State != ledger.Bound || len(view.Given) == 0 {
		return nil, false
	}
	var claims []string
	lacking := false
	for _, given := range view.Given {
		if given.Claim.Name != "" {
			claims = append(claims, given.Claim.Name)
			lacking = lacking || given.Resource == "" || len(given.IDs) == 0
		} else if lacking {
			return nil, false // nobody knows what these were for
		}
	}
	if lacking {
		return nil, false // its claims were gone when the server started
	}
	marks = asAsked(pod, view.Asked, claims)
	marks.Given = marks.Tell(view.Given)
	return marks, marks.Given != ""
}

// asAsked returns the claims of a pod as text asks for them where it names just these, and else as a plain list.
func asAsked(pod ledger.PodRef, text string, claims []string) *cluster.DeviceAnnotations {
	marks := cluster.NewDeviceAnnotations(pod, text)
	if marks == nil || !slices.Equal(marks.Claims, claims) {
		marks = &cluster.DeviceAnnotations{Asked: strings.Join(claims, ","), Claims: claims}
	}
	return marks
}

// bringPod makes the claims that a pod lacks, and writes to a bound one what it has to say of its devices.
func (c *Controller) bringPod(ctx context.Context, pod ledger.PodRef) error {
	known, ok := c.Pods.Pod(pod.Namespace, pod.Name)
	if ok && known.Ref == pod && known.Node == "" && known.Devices != nil {
		return c.makeClaims(ctx, known)
	}
	marks, ok := c.wanted(pod)
	if !ok {
		return nil
	}
	err := c.Annotate(ctx, pod, map[string]string{
		v1alpha1.ExtendedResourceClaimsAnnotation: marks.Asked,
		v1alpha1.ExtendedResourcesAnnotation:      marks.Given,
	})
	if err != nil {
		return err
	}
	c.event(informer.PodReference(pod.Namespace, pod.Name, pod.UID),
		v1.EventTypeWarning, reasonRestored, "somebody changed the annotations that say which devices the pod has: it has "+
			marks.Given+" until it goes")
	return nil
}
