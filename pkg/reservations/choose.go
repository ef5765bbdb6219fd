package reservations

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
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
		p.Node = free.BestFit(p, func(node string) bool { return c.avoids(slot, node) == "" })
		if p.Node == "" {
			why := cause{reasonNoNodeFits, fmt.Sprintf("slot %s asks for %s: %s", slot.Name, p.Request.Text(c.Ledger.Table()),
				c.whyNowhere(free, p, slot))}
			return &refused{cause: why, asked: &kept[i], slot: slot, lacks: c.lacksAnywhere(free, p, slot)}
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

// whyNowhere counts the nodes by the reason why a slot cannot be there, the most frequent reason first. Where a
// resource is short it also says where most of it is free.
func (c *Controller) whyNowhere(free *ledger.Survey, p *ledger.Placement, slot *v1alpha1.Slot) string {
	nodes, refused, most := 0, map[string]int{}, map[string]largest{}
	free.FitAll(p, func(node string, v ledger.Verdict) {
		nodes++
		avoided := c.avoids(slot, node)
		toDRA := v.Reason == ledger.InsufficientResource && !v.Unlisted && free.LeftToDRA(node, v.Column)
		reason := cmp.Or(avoided, c.inWords(v, p.Request, toDRA))
		refused[reason]++
		if avoided == "" && v.Reason == ledger.InsufficientResource && !v.Unlisted && !toDRA {
			if there := (largest{free.Free(node, v.Column), node, v.Column}); most[reason].node == "" ||
				there.amount > most[reason].amount {
				most[reason] = there
			}
		}
	})
	if nodes == 0 {
		return "there are no nodes"
	}
	reasons := slices.SortedFunc(maps.Keys(refused), func(a, b string) int {
		return cmp.Or(cmp.Compare(refused[b], refused[a]), cmp.Compare(a, b))
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", refused[reason], reason)
		if m := most[reason]; m.node != "" {
			_, amount := resources.Shortage(c.Ledger.Table().Name(m.column), p.Request.Value(m.column), m.amount)
			reasons[i] += fmt.Sprintf(" (at most %s free, on %s)", amount, m.node)
		}
	}
	return fmt.Sprintf("no node of %d fits: %s", nodes, strings.Join(reasons, ", "))
}

// largest is the node where most is free of the resource that is short.
type largest struct {
	amount int64
	node   string
	column resources.Column
}

func (c *Controller) inWords(v ledger.Verdict, req *resources.Request, toDRA bool) string {
	switch v.Reason {
	case ledger.NodeUnschedulable:
		return "cordoned"
	case ledger.HostPortConflict:
		return "with a host port taken"
	case ledger.InsufficientDevices:
		return "with too few free devices"
	case ledger.DeviceClaimInUse:
		return "because another pod has a claim that the slot keeps devices for"
	case ledger.InsufficientResource:
		if v.Unlisted {
			return "without " + string(req.Unlisted[0].Name)
		}
		name := string(c.Ledger.Table().Name(v.Column))
		if toDRA {
			return "where DRA gives " + name + ", whose devices are kept for no pod to come"
		}
		return "with too little " + name
	default:
		return v.Reason.String()
	}
}
