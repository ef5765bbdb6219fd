package restapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// report writes the one log line of a decision and counts it.
func (a *API) report(g *group, placements []ledger.Placement, refusals []refusal, granted int, out *outcome) {
	result := resultOf(granted, len(refusals))
	label := result
	if g.dryRun {
		label = "dry-run-" + result
	} else {
		for i := range refusals {
			if name, ok := refusals[i].Shortage(); ok && g.verb == verbReserve {
				a.metrics.ObserveConflict(g.scheduler, name)
			}
		}
	}
	a.metrics.ObserveDecision(string(g.verb), g.scheduler, label)
	fields := logrus.Fields{
		"verb": string(g.verb), "scheduler": g.scheduler, "result": result, "pods": len(placements),
		"refused": len(refusals), "placements": firstPlacements(placements), "revision": out.answer.Revision,
	}
	if g.requestID != "" {
		fields["requestID"] = g.requestID
	}
	if g.dryRun {
		fields["dryRun"] = true
	}
	if g.verb == verbReserve {
		cpu, memory := totals(keep(placements, refusals))
		fields["milliCPU"], fields["memoryBytes"] = cpu, memory
		fields["ttl"] = g.ttl.String()
	}
	if out.answer.Reservation != "" {
		fields["reservation"] = out.answer.Reservation
	}
	fields["left"] = a.left(placements)
	if len(refusals) > 0 {
		fields["reason"] = refusals[0].message
	}
	a.log.WithFields(fields).Info(string(g.verb) + " " + result)
}

func resultOf(granted, refused int) string {
	switch {
	case refused == 0:
		return "granted"
	case granted > 0:
		return "partial"
	default:
		return "refused"
	}
}

func firstPlacements(placements []ledger.Placement) string {
	var b strings.Builder
	for i := range min(len(placements), loggedPods) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s->%s", placements[i].Pod, placements[i].Node)
	}
	if more := len(placements) - loggedPods; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

func totals(placements []ledger.Placement) (milliCPU, memory int64) {
	for i := range placements {
		milliCPU, _ = resources.Add(milliCPU, placements[i].Request.Value(resources.CPU))
		memory, _ = resources.Add(memory, placements[i].Request.Value(resources.Memory))
	}
	return milliCPU, memory
}

// left tells what is free on the first nodes of the placements.
func (a *API) left(placements []ledger.Placement) string {
	var nodes []string
	for i := range placements {
		if node := placements[i].Node; node != "" && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
		if len(nodes) == loggedPods {
			break
		}
	}
	columns := []resources.Column{resources.CPU, resources.Memory}
	usage := a.ledger.AppendUsage(nil, nodes, columns)
	parts := make([]string, len(nodes))
	for i, node := range nodes {
		cpu, memory := usage[i*len(columns)], usage[i*len(columns)+1]
		parts[i] = fmt.Sprintf("%s cpu=%dm memory=%d", node, cpu.Free(), memory.Free())
	}
	return strings.Join(parts, ", ")
}
