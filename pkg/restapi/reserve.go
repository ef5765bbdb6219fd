package restapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// reserve serves POST /reserve.
func (a *API) reserve(w http.ResponseWriter, r *http.Request, _ httprouter.Params) error {
	return a.decide(w, r, verbReserve, a.reserveGroup)
}

// unreserve serves POST /unreserve.
func (a *API) unreserve(w http.ResponseWriter, r *http.Request, _ httprouter.Params) error {
	return a.decide(w, r, verbUnreserve, a.unreserveGroup)
}

// outcome is a decision: the answer, and what it granted.
type outcome struct {
	answer reserver.Answer
	// held is what the answer says is reserved.
	held []ledger.Placement
	// deadline is when that ends; zero where nothing was reserved.
	deadline time.Time
	// transient: the next try may end otherwise, so it is not kept for repeats.
	transient bool
}

// decide reads a group, has it decided once, and answers.
func (a *API) decide(w http.ResponseWriter, r *http.Request, v verb, act func(context.Context, *group) (outcome, error)) error {
	g, err := a.readGroup(w, r, v)
	if err != nil {
		return err
	}
	answer, err := a.decideGroup(r.Context(), g, act)
	if err != nil {
		return err
	}
	httpjson.Write(w, http.StatusOK, answer)
	return nil
}

// decideGroup has a group decided once, and answers repeats.
func (a *API) decideGroup(
	ctx context.Context, g *group, act func(context.Context, *group) (outcome, error),
) (*reserver.Answer, error) {
	fresh := func() (outcome, bool, error) {
		late, err := a.awaitRevision(ctx, g.minRevision)
		switch {
		case err != nil:
			return outcome{}, false, err
		case late != "":
			return outcome{answer: a.failAll(g, late)}, false, nil
		}
		out, err := act(ctx, g)
		return out, err == nil && !out.transient, err
	}
	if g.requestID == "" {
		out, _, err := fresh()
		return &out.answer, err
	}
	out, repeated, err := a.replays.do(ctx, g, a.ledger.Table(), a.clock.Now, fresh)
	if err == nil && repeated {
		out.answer = a.repeat(g, &out)
	}
	return &out.answer, err
}

// reserveGroup decides a /reserve.
func (a *API) reserveGroup(ctx context.Context, g *group) (outcome, error) {
	if g.durable {
		return a.reserveDurable(ctx, g)
	}
	placements, screened, err := a.resolve(g)
	if err != nil {
		return outcome{}, err
	}
	now := a.clock.Now()
	plan := ledger.Plan{
		Placements: keep(placements, screened), Mode: g.mode, Deadline: now.Add(g.ttl), DryRun: g.dryRun,
	}
	if len(screened) > 0 && g.mode == ledger.AllOrNothing {
		plan.DryRun = true // only to learn what else is wrong
	}
	result := a.ledger.Reserve(plan, now)
	if len(screened) > 0 && g.mode == ledger.AllOrNothing {
		result.Granted = 0
	}
	refusals := merge(placements, screened, result.Rejections)
	out := outcome{answer: newGroupAnswer(refusals, result.Revision)}
	if result.Granted > 0 {
		out.answer.ExpiresAt = plan.Deadline.UTC().Truncate(time.Second)
		if !g.dryRun {
			out.held, out.deadline = granted(placements, refusals), plan.Deadline
		}
	} else {
		out.answer.Error = groupError("nothing was reserved", refusals, len(placements))
	}
	a.report(g, placements, refusals, result.Granted, &out)
	return out, nil
}

// resolve makes what the ledger is asked, and refuses pods that must not be
// scheduled any more. Where the API server has the very pod, its requests are
// taken from there: a scheduler's copy may be cut down, and what will be bound
// is what the API server has.
func (a *API) resolve(g *group) ([]ledger.Placement, []refusal, error) {
	placements := make([]ledger.Placement, len(g.pods))
	var refusals []refusal
	for i := range g.pods {
		pod := &g.pods[i]
		p := &placements[i]
		*p = ledger.Placement{
			Pod: pod.ref, Node: g.node(i), Request: pod.request, Scheduler: g.scheduler, Priority: pod.priority,
		}
		info := a.known(pod.ref)
		if info == nil {
			p.Devices = a.devicesOf(&podinfo.Info{Ref: pod.ref, Devices: pod.devices})
			if pod.request == nil {
				return nil, nil, badRequest("Pods[%d]: %s has no spec.containers, and the API server is not known to have such a pod: "+
					"send the whole pod", i, pod.ref)
			}
			continue
		}
		p.Pod, p.Request, p.Priority = info.Ref, info.Request.Relisted(a.ledger.Table()), info.Priority
		p.Devices = a.devicesOf(info)
		if a.matcher != nil && !g.durable {
			p.Holds = a.matcher.Candidates(info) // as its bind would; a durable group has slots of its own
		}
		if info.Finished || info.Deleting {
			refusals = append(refusals, newGone(i, p, info))
		}
	}
	return placements, refusals, nil
}

// known returns what the API server has of that pod. It returns nil where it has
// none of the name, or one of another UID: then either the informer is behind or
// the scheduler is, and the ledger, which remembers UIDs that are gone, decides.
func (a *API) known(ref ledger.PodRef) *podinfo.Info {
	info, ok := a.pods.Pod(ref.Namespace, ref.Name)
	if !ok || (ref.UID != "" && ref.UID != info.Ref.UID) {
		return nil
	}
	return info
}

// refusal is a rejection with its explanation.
type refusal struct {
	ledger.Rejection
	index   int // of the placement
	message string
}

func newGone(i int, p *ledger.Placement, info *podinfo.Info) refusal {
	what := "is being deleted"
	if info.Finished {
		what = "has finished"
	}
	return refusal{
		Rejection: ledger.Rejection{Pod: p.Pod, Node: p.Node, Reason: ledger.PodGone},
		index:     i,
		message:   fmt.Sprintf("pod %s (uid %s) %s; do not schedule it", p.Pod, p.Pod.UID, what),
	}
}

// keep returns the placements that were not refused.
func keep(placements []ledger.Placement, refused []refusal) []ledger.Placement {
	if len(refused) == 0 {
		return placements
	}
	kept := make([]ledger.Placement, 0, len(placements)-len(refused))
	for i := range placements {
		if len(refused) > 0 && refused[0].index == i {
			refused = refused[1:]
			continue
		}
		kept = append(kept, placements[i])
	}
	return kept
}

// merge puts refusals of both kinds, each ordered, into the order of the request.
func merge(placements []ledger.Placement, screened []refusal, rejections []ledger.Rejection) []refusal {
	all := make([]refusal, 0, len(screened)+len(rejections))
	for i := range placements {
		switch {
		case len(screened) > 0 && screened[0].index == i:
			all = append(all, screened[0])
			screened = screened[1:]
		case len(rejections) > 0 && rejections[0].Pod == placements[i].Pod:
			all = append(all, refusal{Rejection: rejections[0], index: i, message: rejections[0].Message()})
			rejections = rejections[1:]
		}
	}
	return all
}

// granted returns the placements that were not refused.
func granted(placements []ledger.Placement, refusals []refusal) []ledger.Placement {
	kept := keep(placements, refusals)
	held := make([]ledger.Placement, len(kept))
	for i := range kept {
		held[i] = ledger.Placement{Pod: kept[i].Pod, Node: kept[i].Node}
	}
	return held
}

func newGroupAnswer(refusals []refusal, revision uint64) reserver.Answer {
	answer := reserver.Answer{FailedPods: make([]string, 0, len(refusals)), Revision: revision}
	for i := range refusals {
		r := &refusals[i]
		answer.FailedPods = append(answer.FailedPods, r.Pod.Name)
		answer.Rejections = append(answer.Rejections, newRejection(&r.Rejection, r.message))
	}
	return answer
}

// groupError says what became of a group that was refused, and why.
func groupError(what string, refusals []refusal, pods int) string {
	return fmt.Sprintf("%s, %d of %d pods were refused: %s", what, len(refusals), pods, refusals[0].message)
}

// failAll refuses every pod of a group for a reason that is none of the pods'.
func (a *API) failAll(g *group, why string) reserver.Answer {
	answer := reserver.Answer{FailedPods: make([]string, len(g.pods)), Error: why, Revision: a.ledger.Revision()}
	for i := range g.pods {
		answer.FailedPods[i] = g.pods[i].ref.Name
	}
	return answer
}

// repeat returns the answer to a repeated request. It is the first one, unless
// that would say that room is held which is not.
func (a *API) repeat(g *group, first *outcome) reserver.Answer {
	var lost []string
	for i := range first.held {
		h := &first.held[i]
		if !a.hasRoom(h) {
			lost = append(lost, h.Pod.Name)
		}
	}
	if len(lost) == 0 {
		return first.answer
	}
	return reserver.Answer{
		FailedPods: lost,
		Error: fmt.Sprintf("this repeats RequestID \"%s\", granted at revision %d, but the room of %d of its pods has been "+
			"given up since (TTL, /unreserve, or the pod is gone): reserve again with a new RequestID",
			httpjson.Clip(g.requestID), first.answer.Revision, len(lost)),
		Revision: a.ledger.Revision(),
	}
}

// hasRoom reports whether a pod has room on a node, by a claim or by a hold.
func (a *API) hasRoom(p *ledger.Placement) bool {
	if claim, ok := a.ledger.Claim(p.Pod); ok {
		return claim.Node == p.Node
	}
	hold, ok := a.ledger.HoldFor(p.Pod)
	return ok && hold.Node == p.Node
}

// awaitRevision waits, not long, until the ledger is at revision or beyond. late
// is why that did not happen. The error is errClientGone.
func (a *API) awaitRevision(ctx context.Context, revision uint64) (late string, err error) {
	if a.ledger.Revision() >= revision {
		return "", nil
	}
	wake, cancel := a.ledger.Subscribe()
	defer cancel()
	timer := a.clock.NewTimer(a.limits.MinRevisionWait)
	defer timer.Stop()
	for a.ledger.Revision() < revision {
		select {
		case <-wake:
		case <-ctx.Done():
			return "", errClientGone
		case <-a.done:
			return "the server is stopping: send the request again", nil
		case <-timer.C():
			return fmt.Sprintf("nothing was done: MinRevision is %d and the ledger is at revision %d still after %s; "+
				"try again, or send the Revision of an answer of this server",
				revision, a.ledger.Revision(), a.limits.MinRevisionWait), nil
		}
	}
	return "", nil
}
