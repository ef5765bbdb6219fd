package rest

import (
	"fmt"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// devicesNotKept warns a caller that reserves capacity for pods with ResourceClaims.
	devicesNotKept = "spec.resourceClaims: no DRA device is kept for these pods, only their other resources; their " +
		"scheduler allocates the devices when it binds them, if there are some left"
	// notDurable warns of a gang that cannot be one Reservation object.
	notDurable = "the reservation is one in memory, and ends with this server: "
	// asksForNothing warns of pods without requests: these may stand where the server does not read them.
	asksForNothing = "%s asks for nothing, so that only its place among the node's pods is kept: give it " +
		"spec.containers[].resources.requests, unless that is meant"
	// noNamespace warns of pods without a namespace: other pods may be meant.
	noNamespace = "Pods[%d] has no metadata.namespace: it was taken for %s"
)

// counted returns the amounts that were counted of the pods that are granted, or fit. It warns of the first pod that
// asks for nothing.
func (a *API) counted(g *asked, d *reserve.Decision) (requests reserver.Amounts, warnings []string) {
	table, bare := a.o.Ledger.Table(), ""
	requests = reserver.Amounts{}
	refused := d.Refusals
	for i := range d.Placements {
		if len(refused) > 0 && refused[0].Index == i {
			refused = refused[1:]
			continue
		}
		p := &d.Placements[i]
		addAmounts(requests, table, p.Request)
		if bare == "" && len(p.Request.Amounts)+len(p.Request.Unlisted)+len(p.Request.Ports) == 1 && p.Devices == nil {
			bare = p.Pod.String()
		}
	}
	if bare != "" && !g.claims {
		warnings = []string{fmt.Sprintf(asksForNothing, bare)}
	}
	return requests, warnings
}

// warned is an answer with the warnings about the request itself.
func (g *asked) warned(answer reserver.Answer) *reserver.Answer {
	answer.Warnings = g.allWarnings(answer.Warnings, g.verb == verbReserve && answer.Error == "")
	return &answer
}

// allWarnings are those of the request, of its pods, and, where they were granted or fit, of their claims.
func (g *asked) allWarnings(ofPods []string, granted bool) []string {
	all := slices.Concat(g.warnings, ofPods)
	if g.claims && granted {
		all = append(all, devicesNotKept)
	}
	return all
}
