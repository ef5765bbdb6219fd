package rest

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// whatIf serves POST /v1/whatif: what /reserve would answer, now or if some pods
// were gone, and which nodes to ask for. It changes nothing.
func (a *API) whatIf(w http.ResponseWriter, r *http.Request) error {
	g, err := a.readGang(w, r, verbWhatIf)
	if err != nil {
		return err
	}
	who, pods := a.readerOf(r.Context()), slices.Clone(g.without)
	for i := range g.Pods {
		pods = append(pods, g.Pods[i].Ref)
	}
	if err := who.mustSeePods(a.o.Ledger, pods); err != nil {
		return err
	}
	late, err := a.awaitRevision(r.Context(), g.minRevision)
	if err != nil {
		return err
	}
	if late != "" {
		failed := a.failAll(g, late)
		httpjson.Write(w, http.StatusOK, &reserver.WhatIfAnswer{
			FailedPods: failed.FailedPods, Error: failed.Error, Revision: failed.Revision, Placements: []reserver.Assignment{},
		})
		return nil
	}
	decide, err := a.o.Reserve.WhatIf(r.Context(), &g.Request, g.without)
	if err != nil {
		return httpjson.Errorf(statusOf(err), "%s", err)
	}
	return a.answer(w, r, func() (any, error) {
		d := decide()
		answer := newWhatIfAnswer(d, who)
		requests, warnings := a.counted(g, d)
		answer.Requests, answer.Warnings = requests, g.allWarnings(warnings, d.Error == "")
		return answer, nil
	})
}

func newWhatIfAnswer(d *reserve.Decision, who *reader) *reserver.WhatIfAnswer {
	said := newAnswer(d, who)
	answer := &reserver.WhatIfAnswer{
		FailedPods: said.FailedPods, Error: d.Error, Revision: d.Revision, Rejections: said.Rejections,
		Placements: listOf(d.Placements, func(p *ledger.Placement) reserver.Assignment {
			return reserver.Assignment{
				Namespace: p.Pod.Namespace, Pod: p.Pod.Name, UID: string(p.Pod.UID), Node: p.Node, Fits: true,
			}
		}),
	}
	for i := range d.Refusals {
		answer.Placements[d.Refusals[i].Index].Fits = false
	}
	return answer
}

// explain serves GET /v1/explain: why a pod is pending, or where it is.
func (a *API) explain(q *query) (any, error) {
	ref := ledger.PodRef{Namespace: cmp.Or(q.Get("namespace"), "default"), Name: q.Get("pod")}
	if ref.Name == "" {
		return nil, badRequest("the query parameter \"pod\" is missing: send ?namespace=...&pod=...")
	}
	if err := q.mustSee(ref.Namespace); err != nil {
		return nil, err
	}
	e := a.o.Arbiter.Explain(ref)
	if e == nil {
		return nil, httpjson.Errorf(http.StatusNotFound,
			"pod \"%s\" is not known: there is no such pod, or the server has not seen it yet", httpjson.Clip(ref.String()))
	}
	answer := a.newExplainAnswer(e)
	if answer.Closest != nil {
		q.hideHolders(answer.Closest.Holders)
	}
	return answer, nil
}

func (a *API) newExplainAnswer(e *decide.Explanation) *reserver.ExplainAnswer {
	answer := &e.ExplainAnswer
	answer.Requests, answer.Reservation = requestAmounts(a.o.Ledger.Table(), e.Request), slotName(e.Slot)
	if answer.Closest != nil {
		answer.Closest.Holders = newHolders(e.Holders)
	}
	return answer
}
