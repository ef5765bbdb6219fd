package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// WhyNowhere counts the nodes of a survey by the reason why a slot cannot be there, the most frequent reason first.
// Where a resource is short it also says where most of it is free. avoids says why the slot does not want a node,
// whatever is free there; "" if it does.
func WhyNowhere(t *resources.Table, free *ledger.Survey, p *ledger.Placement, avoids func(node string) string) string {
	nodes, refused, most := 0, map[string]int{}, map[string]ledger.Lack{}
	free.FitAll(p, func(node string, v ledger.Verdict) {
		nodes++
		avoided := avoids(node)
		toDRA := v.Reason == ledger.InsufficientResource && !v.Unlisted && free.LeftToDRA(node, v.Column)
		reason := cmp.Or(avoided, inWords(t, v, p.Request, toDRA))
		refused[reason]++
		if avoided == "" && v.Reason == ledger.InsufficientResource && !v.Unlisted && !toDRA {
			if there := free.Free(node, v.Column); most[reason].Node == "" || there > most[reason].Largest {
				most[reason] = ledger.Lack{
					Resource: string(t.Name(v.Column)), Requested: p.Request.Value(v.Column), Largest: there, Node: node,
				}
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
		if m := most[reason]; m.Node != "" {
			_, amount := resources.Shortage(v1.ResourceName(m.Resource), m.Requested, m.Largest)
			reasons[i] += fmt.Sprintf(" (at most %s free, on %s)", amount, m.Node)
		}
	}
	return fmt.Sprintf("no node of %d fits: %s", nodes, strings.Join(reasons, ", "))
}

func inWords(t *resources.Table, v ledger.Verdict, req *resources.Request, toDRA bool) string {
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
		name := string(t.Name(v.Column))
		if toDRA {
			return "where DRA gives " + name + ", whose devices are kept for no pod to come"
		}
		return "with too little " + name
	default:
		return v.Reason.String()
	}
}
