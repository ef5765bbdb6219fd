package restapi

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/julienschmidt/httprouter"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// explain serves GET /v1/explain: why a pod is pending, or where it is.
func (a *API) explain(w http.ResponseWriter, r *http.Request, _ httprouter.Params) error {
	values, err := query(r, "namespace", "pod")
	if err != nil {
		return err
	}
	ref := ledger.PodRef{Namespace: cmp.Or(values.Get("namespace"), "default"), Name: values.Get("pod")}
	if ref.Name == "" {
		return badRequest("the query parameter \"pod\" is missing: send ?namespace=...&pod=...")
	}
	return a.answer(w, r, func() (any, error) { return a.explainRef(ref) })
}

func (a *API) explainRef(ref ledger.PodRef) (any, error) {
	info, _ := a.pods.Pod(ref.Namespace, ref.Name)
	if info != nil {
		ref = info.Ref
	}
	claim, claimed := a.ledger.Claim(ref)
	hold, held := a.ledger.HoldFor(ref)
	switch {
	case claimed:
		return a.explainClaim(&claim, info), nil
	case held && (info == nil || !info.Finished && !info.Deleting):
		return a.explainHold(ref, &hold), nil
	case info != nil:
		return a.explainPod(info), nil
	default:
		return nil, httpjson.Errorf(http.StatusNotFound,
			"pod \"%s\" is not known: there is no such pod, or the server has not seen it yet", httpjson.Clip(ref.String()))
	}
}

// explainClaim says where the room of a pod is.
func (a *API) explainClaim(view *ledger.ClaimView, info *podinfo.Info) *reserver.ExplainAnswer {
	answer := &reserver.ExplainAnswer{
		Namespace: view.Pod.Namespace, Pod: view.Pod.Name, UID: string(view.Pod.UID), Scheduler: view.Scheduler,
		State: view.State.String(), Node: view.Node, ExpiresAt: utc(view.Deadline),
		Requests: requestAmounts(a.ledger.Table(), view.Request), Revision: a.ledger.Revision(),
		Reservation: holdName(view.Hold),
	}
	switch view.State {
	case ledger.Bound:
		answer.Message = fmt.Sprintf("the pod is bound to node %q", view.Node)
	case ledger.Binding:
		answer.Message = fmt.Sprintf("the pod is being bound to node %q", view.Node)
	default:
		answer.Message = fmt.Sprintf("room for the pod is reserved on node %q by scheduler %q, which has not bound it yet",
			view.Node, view.Scheduler)
	}
	if info != nil && info.Deleting {
		answer.State = "Deleting"
		answer.Message += "; it is being deleted and uses its room until it is gone"
	}
	return answer
}

// explainHold says where room is kept for a pod that has not taken it yet.
func (a *API) explainHold(pod ledger.PodRef, view *ledger.HoldView) *reserver.ExplainAnswer {
	return &reserver.ExplainAnswer{
		Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Scheduler: view.Scheduler,
		State: ledger.Reserved.String(), Node: view.Node, ExpiresAt: utc(view.Deadline), Reservation: holdName(view.Ref),
		Requests: requestAmounts(a.ledger.Table(), view.Request), Revision: a.ledger.Revision(),
		Message: fmt.Sprintf("reservation %s keeps room for the pod on node %q; it is not bound yet", view.Ref, view.Node),
	}
}

// explainPod says why a pod without a claim has no node.
func (a *API) explainPod(info *podinfo.Info) *reserver.ExplainAnswer {
	answer := &reserver.ExplainAnswer{
		Namespace: info.Ref.Namespace, Pod: info.Ref.Name, UID: string(info.Ref.UID), Scheduler: info.Scheduler,
		State: "Pending", Node: info.Node, Requests: requestAmounts(a.ledger.Table(), info.Request),
		Revision: a.ledger.Revision(),
	}
	switch {
	case info.Finished:
		answer.State, answer.Message = "Finished", "the pod has finished and uses no room any more"
	case info.Deleting:
		answer.State, answer.Message = "Deleting", "the pod is being deleted and must not be scheduled any more"
	case info.Bound():
		answer.State, answer.Message = "Bound", fmt.Sprintf("the pod is bound to node %q", info.Node)
	default:
		placement := info.Placement("")
		placement.Request = info.Request.Relisted(a.ledger.Table())
		if a.matcher != nil {
			placement.Holds = a.matcher.Candidates(info)
		}
		placement.Devices = a.devicesOf(info)
		a.explainPending(answer, placement)
	}
	return answer
}

func (a *API) explainPending(answer *reserver.ExplainAnswer, pod ledger.Placement) {
	kept := a.keptFor(&pod)
	a.groupVerdicts(answer, &pod, kept)
	switch {
	case answer.NodeCount == 0:
		answer.Message = "there are no nodes in the ledger"
		return
	case len(kept) > 0:
		first := kept[0]
		answer.Reservation = holdName(first.Ref)
		answer.Message = fmt.Sprintf("reservation %s keeps room that the pod may use on node %q: its scheduler has not tried that node since, "+
			"or something else keeps it off (node selector, affinity, taints, volumes, a scheduling gate)", first.Ref, first.Node)
		return
	case answer.FitCount > 0:
		answer.Message = fmt.Sprintf("there is room for the pod on %d of %d nodes: its scheduler has not tried them since, "+
			"or something else keeps it off (node selector, affinity, taints, volumes, a scheduling gate)",
			answer.FitCount, answer.NodeCount)
		return
	}
	answer.Message = fmt.Sprintf("there is no room for the pod on any of %d nodes", answer.NodeCount)
	answer.Closest = a.closestNode(pod)
	if answer.Closest != nil {
		answer.Message += "; on the closest, " + answer.Closest.Message
	}
}

// keptFor returns the holds that a pod may use and that have room for it.
func (a *API) keptFor(pod *ledger.Placement) []ledger.Hold {
	var kept []ledger.Hold
	for _, ref := range pod.Holds {
		for _, view := range a.ledger.ReservationHolds(ref.Namespace, ref.Name) {
			one := *pod
			one.Holds = []ledger.HoldRef{ref}
			if view.Ref == ref && a.ledger.AppendFit(nil, &one, []string{view.Node})[0].Reason == ledger.Fits {
				kept = append(kept, view.Hold)
			}
		}
	}
	return kept
}

// groupVerdicts counts the nodes by what they say to the pod; kept are holds
// that the pod fits.
func (a *API) groupVerdicts(answer *reserver.ExplainAnswer, pod *ledger.Placement, kept []ledger.Hold) {
	groups := map[ledger.Verdict]*reserver.RefusalGroup{}
	a.ledger.FitAll(pod, func(node string, v ledger.Verdict) {
		answer.NodeCount++
		fits := v.Reason == ledger.Fits || slices.ContainsFunc(kept, func(h ledger.Hold) bool { return h.Node == node })
		if fits {
			answer.FitCount++
			answer.FitExamples = addExample(answer.FitExamples, node)
			return
		}
		g := groups[v]
		if g == nil {
			g = &reserver.RefusalGroup{Reason: v.Reason.String()}
			groups[v] = g
		}
		g.Nodes++
		g.Examples = addExample(g.Examples, node)
	})
	for v, g := range groups {
		if v.Reason == ledger.InsufficientResource {
			g.Resource = a.shortResource(v, pod.Request)
		}
		answer.Refusals = append(answer.Refusals, *g)
	}
	slices.SortFunc(answer.Refusals, func(a, b reserver.RefusalGroup) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Resource, b.Resource))
	})
}

// shortResource names the resource of a verdict.
func (a *API) shortResource(v ledger.Verdict, request *resources.Request) string {
	if v.Unlisted {
		return string(request.Unlisted[0].Name)
	}
	return string(a.ledger.Table().Name(v.Column))
}

// addExample keeps the first few names in order, whatever order they come in.
func addExample(examples []string, name string) []string {
	at, _ := slices.BinarySearch(examples, name)
	if at == explainExamples {
		return examples
	}
	examples = slices.Insert(examples, at, name)
	return examples[:min(len(examples), explainExamples)]
}

// closestNode says what the pod lacks on the node where it lacks least.
func (a *API) closestNode(pod ledger.Placement) *reserver.ClosestNode {
	n := newSurvey(a.ledger, nil).closest(&pod)
	if n == nil {
		return nil
	}
	c := &reserver.ClosestNode{Node: n.name, Missing: []reserver.MissingAmount{}}
	for _, m := range n.missing(pod.Request) {
		c.Missing = append(c.Missing, reserver.MissingAmount{
			Resource: string(a.ledger.Table().Name(m.column)), Requested: pod.Request.Value(m.column),
			Free: valueAt(n.free, m.column), Missing: m.value,
		})
	}
	for _, u := range pod.Request.Unlisted {
		c.Missing = append(c.Missing, reserver.MissingAmount{Resource: string(u.Name), Requested: u.Value, Missing: u.Value})
	}
	// The holders and the words come from the ledger, asked for that node alone.
	pod.Node = n.name
	result := a.ledger.Reserve(ledger.Plan{Placements: []ledger.Placement{pod}, DryRun: true}, a.clock.Now())
	if len(result.Rejections) > 0 {
		c.Holders = newHolders(result.Rejections[0].Holders)
		c.Message = result.Rejections[0].Message()
	} else {
		c.Message = fmt.Sprintf("node %q, there is room by now", n.name)
	}
	return c
}
