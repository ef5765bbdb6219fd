package reservations

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// choose fills in a node for each slot that has none, and takes the capacity of all slots off the survey. Slots with
// devices come first, then the largest. Each gets the node that it leaves least free capacity on. kept and slots are
// the same slots in the same order. Where a slot finds no node, or not all have one by a deadline, choose returns why.
func (c *Controller) choose(free *ledger.Survey, kept []ledger.Slot, slots []v1alpha1.Slot,
	deadline time.Time,
) *refused {
	var open []int
	asked := make([]ledger.Placement, len(kept))
	for i := range kept {
		h := &kept[i]
		asked[i] = ledger.Placement{Pod: h.Pod, Node: h.Node, Request: h.Request, Devices: h.Devices, NoDRA: true}
		if h.Node == "" {
			open = append(open, i)
		} else {
			free.Take(&asked[i])
		}
	}
	slices.SortStableFunc(open, func(a, b int) int {
		return cmp.Or(
			cmp.Compare(countDevices(kept[b].Devices), countDevices(kept[a].Devices)),
			cmp.Compare(kept[b].Request.Value(resources.CPU), kept[a].Request.Value(resources.CPU)),
			cmp.Compare(kept[b].Request.Value(resources.Memory), kept[a].Request.Value(resources.Memory)))
	})
	for _, i := range open {
		if c.now().After(deadline) {
			return &refused{cause: cause{reasonNotGranted, fmt.Sprintf("it takes more than %v to choose nodes for its %d "+
				"slots; ask for them in several Reservations, or name nodes", attemptMost, len(kept))}}
		}
		p, slot := &asked[i], &slots[i]
		suits := func(node string) bool { return c.avoids(slot, node) == "" }
		p.Node = free.BestFit(p, suits)
		if p.Node == "" {
			why := cause{reasonNoNodeFits, fmt.Sprintf("slot %s asks for %s: %s", slot.Name, p.Request.Text(c.Ledger.Table()),
				placement.WhyNowhere(c.Ledger.Table(), free, p,
					func(node string) string { return c.avoids(slot, node) }))}
			return &refused{cause: why, asked: &kept[i], slot: slot, lacks: free.Largest(p, suits)}
		}
		kept[i].Node = p.Node
		free.Take(p)
	}
	return nil
}

func countDevices(r *ledger.DeviceRequest) int {
	if r == nil {
		return 0
	}
	return len(r.Requests)
}

// avoids returns in words why a slot, or its pod, does not want a node; empty if it does. The ledger checks the taint
// of a cordoned node.
func (c *Controller) avoids(slot *v1alpha1.Slot, name string) string {
	node, ok := c.Nodes.Node(name)
	if !ok {
		return "just deleted"
	}
	if !labels.SelectorFromSet(slot.NodeSelector).Matches(labels.Set(node.Labels)) {
		return "not selected by nodeSelector"
	}
	_, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Taints, slot.Tolerations,
		func(t *v1.Taint) bool {
			return t.Key != v1.TaintNodeUnschedulable && (t.Effect == v1.TaintEffectNoSchedule ||
				t.Effect == v1.TaintEffectNoExecute)
		}, false)
	if found {
		return "with a taint the slot does not tolerate"
	}
	return ""
}
