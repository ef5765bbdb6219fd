package arbiter

import (
	"context"
	"errors"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/arbiter/refused"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// RefusalsAfter returns the remembered refusals after the one of a number, oldest first, and the number of the last
// refusal.
func (a *Arbiter) RefusalsAfter(number uint64) (refusals []*refused.Refusal, last uint64) {
	return a.refused.After(number)
}

// SubscribeRefusals returns a channel that gets a value after refusals: one value may stand for many. cancel must be called
// once when it is no longer read.
func (a *Arbiter) SubscribeRefusals() (wake <-chan struct{}, cancel func()) {
	return a.refused.Subscribe()
}

// AdmissionWarns reports whether the admission webhook only warns of what the arbiter refuses, and allows it.
func (a *Arbiter) AdmissionWarns() bool { return a.o.AdmissionWarns }

// refuse remembers a refusal that a caller is told now.
func (a *Arbiter) refuse(r *refused.Refusal) {
	r.At = a.o.Ledger.Clock.Wall()
	a.refused.Add(r)
}

// FilterRefused remembers that filter has left a pod none of the nodes offered. It is called after the answer. A pod that
// was sent to capacity that is kept for it is not refused.
func (a *Arbiter) FilterRefused(ctx context.Context, advice *Advice, offered []string) {
	r := &refused.Refusal{Path: refused.Filter, Caller: identity.Name(ctx), Scheduler: advice.Pod.Scheduler}
	r.Rejection.Pod = advice.Pod.Ref
	switch {
	case advice.Refused != nil:
		r.Reason, r.Message = refusalKind(advice.Refused), advice.Refused.Error()
		a.refuse(r)
		return
	case len(advice.Verdicts) == 0:
		return
	}
	reason := advice.Verdicts[0].Reason
	if advice.ComesBack && !ofGang(reason) {
		return
	}
	a.refuseNodes(r, advice.Pod, advice.Verdicts, offered)
}

// PluginRefused remembers that the scheduler plugin has refused a pod some nodes, and nothing has left it another one,
// unless all of them have capacity by now.
func (a *Arbiter) PluginRefused(pod *cluster.Pod, nodes []string) {
	placement := a.o.Question.For(pod, "")
	verdicts := a.o.Ledger.AppendFit(nil, &placement, nodes)
	refusing := slices.DeleteFunc(verdicts, func(v ledger.Verdict) bool { return v.Reason == ledger.Fits })
	if len(refusing) == 0 {
		return
	}
	r := &refused.Refusal{Path: refused.Plugin, Caller: placement.Caller, Scheduler: pod.Scheduler}
	r.Rejection.Pod = pod.Ref
	a.refuseNodes(r, pod, refusing, nodes)
}

// refuseNodes remembers that a pod was refused nodes, of which verdicts say why.
func (a *Arbiter) refuseNodes(r *refused.Refusal, pod *cluster.Pod, verdicts []ledger.Verdict, nodes []string) {
	r.Rejection.Reason = verdicts[0].Reason
	r.Reasons = refused.CountReasons(verdicts)
	a.explainFilter(r, pod, nodes)
	r.Reason = r.Rejection.Reason.String()
	a.refuse(r)
}

// ObjectRefused remembers that there was no capacity for a slot of a Reservation object, the slot that asked names.
// said is what the ledger said of one node. Where it is nil, why has the reason in words.
func (a *Arbiter) ObjectRefused(asked *ledger.Slot, said *ledger.Rejection, why string) {
	r := &refused.Refusal{Path: refused.Object, Caller: asked.Caller, Scheduler: asked.Scheduler, Reason: ReasonRefused, Message: why}
	if said != nil {
		r.Rejection, r.Reason, r.Message = *said, said.Reason.String(), ""
	}
	r.Rejection.Slot, r.Rejection.Pod = asked.Ref, asked.Pod
	r.Rejection.Pod.Namespace = asked.Ref.Namespace
	a.refuse(r)
}

// explainFilter says which of the nodes offered was the closest, or what else was in the way.
func (a *Arbiter) explainFilter(r *refused.Refusal, pod *cluster.Pod, offered []string) {
	placement := a.o.Question.For(pod, "")
	switch reason := r.Rejection.Reason; {
	case ofGang(reason):
		r.Message = "the gang of the pod cannot start now: GET /v1/gangs tells what it waits for"
	case reason == ledger.AllocatedElsewhere:
		if node, ok := a.o.Ledger.HomeOf(pod.Ref); ok {
			r.Rejection.AllocatedOn = node
		}
	case reason.OfLimit():
		if over := a.o.Ledger.OverLimit(&placement); over != nil {
			r.Rejection = *over
		}
	default:
		if nearest := a.o.Ledger.Nearest(&placement, offered); nearest != nil {
			r.Rejection = *nearest
		}
	}
}

func ofGang(reason ledger.Reason) bool {
	return reason == ledger.GangUnplaced || reason == ledger.GangIncomplete || reason == ledger.GangWaits
}

// bindRefused remembers that a flight was refused, if it was.
func (a *Arbiter) bindRefused(f *flight) {
	asked := &ledger.Placement{Pod: f.pod, Node: f.node, Caller: f.caller}
	if info := f.info.Load(); info != nil {
		asked.Scheduler = info.Scheduler
	}
	a.refusedFor(refused.Bind, asked, f.err)
}

// refusedFor remembers an error about one pod on one node, if it is a refusal.
func (a *Arbiter) refusedFor(path string, asked *ledger.Placement, err error) {
	if r := a.refusalOf(path, asked, err); r != nil {
		a.refuse(r)
	}
}

// refusalOf makes a refusal of an error about one pod on one node; nil where the error is no refusal.
func (a *Arbiter) refusalOf(path string, asked *ledger.Placement, err error) *refused.Refusal {
	reason := refusalKind(err)
	if reason == "" {
		return nil
	}
	r := &refused.Refusal{Path: path, Caller: asked.Caller, Scheduler: asked.Scheduler, Reason: reason}
	r.Warned = a.o.AdmissionWarns && (path == refused.Admission || path == refused.Resize)
	var e *Error
	if errors.As(err, &e) && e.Rejection != nil {
		r.Rejection = *e.Rejection
	} else {
		r.Rejection, r.Message = ledger.Rejection{Pod: asked.Pod, Node: asked.Node}, err.Error()
	}
	return r
}

// refusalKind names why an error refuses a pod, "" where it says something else.
func refusalKind(err error) string {
	var e *Error
	switch {
	case errors.As(err, new(*UncountableError)):
		return ReasonPodInvalid
	case !errors.As(err, &e) || e.Outcome != Refused:
		return ""
	case e.Rejection == nil: // a gate's
		return ReasonRefused
	default:
		return e.Rejection.Reason.String()
	}
}

// refusedGang remembers the refusals of a decision on a gang.
func (a *Arbiter) refusedGang(g *Gang, d *Decision) {
	for i := range d.Refusals {
		said := &d.Refusals[i]
		r := &refused.Refusal{Path: refused.Reserve, Caller: g.Caller, Scheduler: g.Scheduler, Reason: said.Reason, Rejection: said.Rejection}
		if said.Rejection.Reason == ledger.Fits { // it was not asked for
			r.Message = said.Message
		}
		a.refuse(r)
	}
}
