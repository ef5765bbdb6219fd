package reserve

import (
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

const loggedPods = 3 // placements spelt out in a log line

// report writes the one log line of a decision on a gang and counts it.
func (a *Arbiter) report(verb string, g *Request, d *Decision) {
	result := resultOf(d.Granted, len(d.Refusals))
	label := result
	if g.DryRun {
		label = "dry-run-" + result
	} else if verb == "reserve" {
		for i := range d.Refusals {
			a.o.Metrics.ObserveRejection(g.Scheduler, &d.Refusals[i].Rejection)
		}
		a.remember(g, d)
	}
	a.o.Metrics.ObserveDecision(verb, g.Scheduler, label)
	fields := logrus.Fields{
		"verb": verb, "scheduler": g.Scheduler, "result": result, "pods": len(d.Placements),
		"refused": len(d.Refusals), "placements": firstPlacements(d.Placements), "revision": d.Revision,
	}
	if g.RequestID != "" {
		fields["requestID"] = g.RequestID
	}
	if g.DryRun {
		fields["dryRun"] = true
	}
	if g.notDurable != "" {
		fields["notDurable"] = g.notDurable
	}
	if verb == "reserve" {
		fields["ttl"] = g.ttl.String()
	}
	if d.Reservation.Name != "" {
		fields["reservation"] = d.Reservation.String()
	}
	if len(d.Refusals) > 0 {
		fields["reason"] = d.Refusals[0].Message
	}
	a.o.Log.WithFields(fields).Info(verb + " " + result)
}

// remember passes the refusals of a decision to Waiting, which remembers them.
func (a *Arbiter) remember(g *Request, d *Decision) {
	for i := range d.Refusals {
		said := &d.Refusals[i]
		r := &requeue.Refusal{
			Path: requeue.Reserve, Caller: g.Caller, Scheduler: g.Scheduler, Reason: said.Reason,
			Rejection: said.Rejection, At: a.o.Ledger.Clock.Wall(),
		}
		if said.Rejection.Reason == ledger.Fits { // the ledger was not asked
			r.Message = said.Message
		}
		a.o.Waiting.Refused(r)
	}
}

// failed is the decision on a gang that is refused for a reason that does not lie with its pods.
func (a *Arbiter) failed(verb string, g *Request, why string) *Decision {
	a.o.Metrics.ObserveDecision(verb, g.Scheduler, "failed")
	a.o.Log.WithFields(logrus.Fields{
		"verb": verb, "scheduler": g.Scheduler, "requestID": g.RequestID, "pods": len(g.Pods), "reason": why,
	}).Warn(verb + " failed")
	d := &Decision{Error: why, Durable: g.Durable, Revision: a.o.Ledger.Revision(), Transient: true}
	for i := range g.Pods {
		d.Failed = append(d.Failed, g.Pods[i].Ref)
	}
	return d
}

// unknown is failed where the gang may have its capacity all the same.
func (a *Arbiter) unknown(g *Request, why string) *UnknownError {
	a.failed("reserve", g, why)
	return &UnknownError{Message: why}
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
