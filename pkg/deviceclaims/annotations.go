package deviceclaims

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// reasonRestored is of Events on pods whose annotations are put back.
const reasonRestored = "DeviceAnnotationsRestored"

// AnnotationsChanged is told of a bound pod whose annotations of devices somebody has changed. The ledger keeps to what
// the pod was bound with, but after a restart it would believe what the pod says then: so that is put back.
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
	marks = &cluster.DeviceAnnotations{}
	var ids []string
	for _, given := range view.Given {
		if given.Claim.Name == "" || given.Resource == "" {
			return nil, false // its claims were gone when the server started
		}
		marks.Claims = append(marks.Claims, given.Claim.Name)
		ids = append(ids, given.IDs...)
	}
	marks.Given = strings.Join(ids, ",")
	return marks, slices.ContainsFunc(ids, func(id string) bool { return id != "" })
}

// bringPod writes to a pod what it has to say of its devices.
func (c *Controller) bringPod(ctx context.Context, pod ledger.PodRef) error {
	marks, ok := c.wanted(pod)
	if !ok {
		return nil
	}
	err := c.Annotate(ctx, pod, map[string]string{
		v1alpha1.ExtendedResourceClaimsAnnotation: strings.Join(marks.Claims, ","),
		v1alpha1.ExtendedResourcesAnnotation:      marks.Given,
	})
	if err != nil {
		return err
	}
	c.event(follow.PodReference(pod.Namespace, pod.Name, pod.UID),
		v1.EventTypeWarning, reasonRestored, "somebody changed the annotations that say which devices the pod has: it has "+marks.Given+" until it goes")
	return nil
}
