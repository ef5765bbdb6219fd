package rest

import (
	"strconv"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// refusals serves GET /v1/refusals: the latest that match, or, with ?after=, the first after the one of that number.
// Refusals of pods that the caller may not see have no names, and a filter by name does not find them.
func (a *API) refusals(q *query) (any, error) {
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	after, err := q.after()
	if err != nil {
		return nil, err
	}
	answer := reserver.RefusalsAnswer{
		Revision: a.o.Ledger.Revision(), Instance: a.instance, Refusals: []reserver.Refusal{},
	}
	all, last := a.o.Waiting.RefusalsAfter(after)
	answer.After = last
	matching := all[:0]
	for _, r := range all {
		if q.has("reason", r.Reason) && q.has("path", r.Path) && q.hasNames(r) {
			matching = append(matching, r)
		}
	}
	switch {
	case len(matching) <= limit:
	case q.Get("after") == "":
		matching = matching[len(matching)-limit:]
	default:
		matching = matching[:limit]
		answer.After = matching[limit-1].Number
	}
	for _, r := range matching {
		answer.Refusals = append(answer.Refusals, q.newRefusal(r))
	}
	return &answer, nil
}

// after returns ?after=, or 0.
func (q *query) after() (uint64, error) {
	text := q.Get("after")
	if text == "" {
		return 0, nil
	}
	after, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, badRequest("after \"%s\" is not the number of a refusal: send the After of an answer", httpjson.Clip(text))
	}
	return after, nil
}

// hasNames reports whether a refusal is of the namespace, the pod and the scheduler asked for, where any is.
func (q *query) hasNames(r *requeue.Refusal) bool {
	if q.Get("namespace")+q.Get("pod")+q.Get("scheduler") == "" {
		return true
	}
	pod := r.Rejection.Pod
	return q.has("namespace", pod.Namespace) && q.has("pod", pod.Name) && q.has("scheduler", r.Scheduler) &&
		q.sees(pod.Namespace)
}

// newRefusal is a refusal as the caller may see it.
func (r *reader) newRefusal(said *requeue.Refusal) reserver.Refusal {
	refusal := reserver.Refusal{
		Number: said.Number, Time: said.At.UTC(), Path: said.Path, Caller: said.Caller, Scheduler: said.Scheduler,
		Observed: said.Observed, Warned: said.Warned,
		Times:     said.Times,
		Rejection: newRejection(said.Reason, said.Message, &said.Rejection),
	}
	if len(said.Reasons) > 0 {
		refusal.Reasons = make(map[string]int, len(said.Reasons))
		for _, c := range said.Reasons {
			refusal.Reasons[c.Reason.String()] = c.Nodes
		}
	}
	if said.Path == requeue.Object {
		refusal.Reservation = slotName(said.Rejection.Slot)
	}
	told := &refusal.Rejection
	r.hideHolders(told.Holders)
	if !r.sees(said.Rejection.Pod.Namespace) {
		refusal.Caller, refusal.Scheduler, refusal.Reservation = "", "", ""
		*told = reserver.Rejection{
			Node: told.Node, Reason: told.Reason, Resource: told.Resource, Requested: told.Requested, Free: told.Free,
			Limit: told.Limit, Holders: told.Holders,
		}
	}
	return refusal
}
