package decide

import (
	"context"
	"errors"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// ReasonPodInvalid is the reason of a refusal of a pod whose requests cannot be counted.
const ReasonPodInvalid = "PodInvalid"

// AdmissionWarns reports whether the admission webhook only warns of what the arbiter refuses, and allows it.
func (a *Arbiter) AdmissionWarns() bool { return a.o.AdmissionWarns }

// refuse remembers a refusal that a caller receives now. For a pod that waits it returns the one before, nil for none.
func (a *Arbiter) refuse(r *requeue.Refusal) (before *requeue.Refusal, waits bool) {
	r.At = a.o.Ledger.Clock.Wall()
	return a.o.Waiting.Refused(r)
}

// Filtered records what Filter has said, after it was answered: a pod that was refused nodes waits. fit is how
// many nodes were left to it.
func (a *Arbiter) Filtered(ctx context.Context, advice *Advice, offered []string) (fit int) {
	pod := advice.Pod
	if advice.Refused != nil {
		a.filterRefused(ctx, advice, offered)
		if advice.Known && refusalKind(advice.Refused) == gates.Reason {
			a.o.Waiting.AwaitGate(pod, advice.Revision, offered)
		}
		return 0
	}
	wakes, barred := false, false
	for _, v := range advice.Verdicts {
		if v.Reason == ledger.Fits {
			fit++
			continue
		}
		wakes = wakes || placement.Refusals[v.Reason].Wakes
		if !barred && v.Reason.OfLimit() {
			barred = true
			a.o.Metrics.ObserveLimit(pod.Scheduler, v.Reason.String())
		}
	}
	if fit == 0 {
		a.filterRefused(ctx, advice, offered)
	}
	if !advice.Known {
		return fit // callers may make such pods up
	}
	a.o.Waiting.Asks(pod.Scheduler, pod.Caller)
	if fit == 0 && !advice.ComesBack {
		a.o.Waiting.SearchLater(pod, advice.Nominated, len(offered))
	}
	switch {
	case advice.TryAgain:
		a.o.Waiting.Wake(pod)
	case wakes && !advice.ComesBack:
		a.o.Waiting.Await(pod, advice.Revision, offered, barred)
	}
	if fit == 0 {
		a.o.Waiting.TellRefused(pod, offered)
	}
	return fit
}

// filterRefused remembers that filter has left a pod none of the nodes offered. A pod that was sent to capacity that is
// kept for it is not refused.
func (a *Arbiter) filterRefused(ctx context.Context, advice *Advice, offered []string) {
	r := &requeue.Refusal{Path: requeue.Filter, Caller: auth.Name(ctx), Scheduler: advice.Pod.Scheduler}
	r.Rejection.Pod = advice.Pod.Ref
	if advice.Refused != nil {
		r.Reason, r.Message = refusalKind(advice.Refused), advice.Refused.Error()
		if before, waits := a.refuse(r); waits && (before == nil || before.Reason != r.Reason) {
			a.o.Log.WithFields(logrus.Fields{"pod": advice.Pod.Ref.String(), "uid": advice.Pod.Ref.UID}).
				WithError(advice.Refused).
				Warn("a pod is refused on every node")
		}
		return
	}
	if len(advice.Verdicts) > 0 && (!advice.ComesBack || advice.Verdicts[0].Reason.OfGang()) {
		a.refuseNodes(r, advice.Pod, advice.Verdicts, offered)
	}
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
	r := &requeue.Refusal{Path: requeue.Plugin, Caller: placement.Caller, Scheduler: pod.Scheduler}
	r.Rejection.Pod = pod.Ref
	a.refuseNodes(r, pod, refusing, nodes)
}

// refuseNodes remembers that a pod was refused nodes, of which verdicts say why.
func (a *Arbiter) refuseNodes(r *requeue.Refusal, pod *cluster.Pod, verdicts []ledger.Verdict, nodes []string) {
	r.Rejection.Reason = verdicts[0].Reason
	r.Reasons = requeue.CountReasons(verdicts)
	a.explainFilter(r, pod, nodes)
	r.Reason = r.Rejection.Reason.String()
	a.refuse(r)
}

// ObjectRefused remembers that there was no capacity for a slot of a Reservation object, the slot that asked names.
// said is what the ledger said of one node. Where it is nil, why has the reason in words.
func (a *Arbiter) ObjectRefused(asked *ledger.Slot, said *ledger.Rejection, why string) {
	r := &requeue.Refusal{
		Path: requeue.Object, Caller: asked.Caller, Scheduler: asked.Scheduler, Reason: gates.Reason,
		Message: why,
	}
	if said != nil {
		r.Rejection, r.Reason, r.Message = *said, said.Reason.String(), ""
		if said.Reason.OfLimit() {
			a.o.Metrics.ObserveLimit(asked.Scheduler, r.Reason)
		}
	}
	r.Rejection.Slot, r.Rejection.Pod = asked.Ref, asked.Pod
	r.Rejection.Pod.Namespace = asked.Ref.Namespace
	a.refuse(r)
}

// explainFilter says which of the nodes offered was the closest, or what else was in the way.
func (a *Arbiter) explainFilter(r *requeue.Refusal, pod *cluster.Pod, offered []string) {
	placement := a.o.Question.For(pod, "")
	switch reason := r.Rejection.Reason; {
	case reason.OfGang():
		r.Message = "the gang of the pod cannot start now: GET /v1/gangs says what it waits for"
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

// bindRefused remembers that a flight was refused, if it was.
func (a *Arbiter) bindRefused(f *flight) {
	asked := &ledger.Placement{Pod: f.pod, Node: f.node, Caller: f.caller}
	if info := f.info.Load(); info != nil {
		asked.Scheduler = info.Scheduler
	}
	a.refusedFor(requeue.Bind, asked, f.err)
}

// refusedFor remembers an error about one pod on one node, if it is a refusal.
func (a *Arbiter) refusedFor(path string, asked *ledger.Placement, err error) {
	if r := a.refusalOf(path, asked, err); r != nil {
		a.refuse(r)
	}
}

// refusalOf makes a refusal of an error about one pod on one node; nil where the error is no refusal.
func (a *Arbiter) refusalOf(path string, asked *ledger.Placement, err error) *requeue.Refusal {
	reason := refusalKind(err)
	if reason == "" {
		return nil
	}
	r := &requeue.Refusal{Path: path, Caller: asked.Caller, Scheduler: asked.Scheduler, Reason: reason}
	r.Warned = a.o.AdmissionWarns && (path == requeue.Admission || path == requeue.Resize)
	var e *gates.Error
	if errors.As(err, &e) && e.Rejection != nil {
		r.Rejection = *e.Rejection
	} else {
		r.Rejection, r.Message = ledger.Rejection{Pod: asked.Pod, Node: asked.Node}, err.Error()
	}
	return r
}

// refusalKind names why an error refuses a pod, "" where it says something else.
func refusalKind(err error) string {
	var e *gates.Error
	switch {
	case errors.As(err, new(*UncountableError)):
		return ReasonPodInvalid
	case !errors.As(err, &e) || e.Outcome != gates.Refused:
		return ""
	case e.Rejection == nil: // a gate's
		return gates.Reason
	default:
		return e.Rejection.Reason.String()
	}
}
