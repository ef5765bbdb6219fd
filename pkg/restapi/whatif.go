package restapi

import (
	"net/http"

	"github.com/julienschmidt/httprouter"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// whatIf serves POST /v1/whatif: what /reserve would answer, now or if some pods
// were gone, and which nodes to ask for. It changes nothing.
func (a *API) whatIf(w http.ResponseWriter, r *http.Request, _ httprouter.Params) error {
	g, err := a.readGroup(w, r, verbWhatIf)
	if err != nil {
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
	return a.answer(w, r, func() (any, error) { return a.tryGroup(g) })
}

func (a *API) tryGroup(g *group) (*reserver.WhatIfAnswer, error) {
	without, err := a.absent(g.without)
	if err != nil {
		return nil, err
	}
	placements, screened, err := a.resolve(g)
	if err != nil {
		return nil, err
	}
	if len(g.nodes) == 0 {
		a.propose(placements, without)
	}
	result := a.ledger.Reserve(ledger.Plan{
		Placements: keep(placements, screened), Mode: ledger.Partial, DryRun: true, Without: without,
	}, a.clock.Now())
	refusals := merge(placements, screened, result.Rejections)
	group := newGroupAnswer(refusals, result.Revision)
	answer := &reserver.WhatIfAnswer{
		FailedPods: group.FailedPods, Revision: group.Revision, Rejections: group.Rejections,
		Placements: make([]reserver.Assignment, len(placements)),
	}
	for i := range placements {
		p := &placements[i]
		answer.Placements[i] = reserver.Assignment{
			Namespace: p.Pod.Namespace, Pod: p.Pod.Name, UID: string(p.Pod.UID), Node: p.Node, Fits: true,
		}
	}
	for i := range refusals {
		answer.Placements[refusals[i].index].Fits = false
	}
	if len(refusals) > 0 && (g.mode == ledger.AllOrNothing || len(refusals) == len(placements)) {
		answer.Error = groupError("nothing would be reserved", refusals, len(placements))
	}
	result.Granted = len(placements) - len(refusals)
	if answer.Error != "" {
		result.Granted = 0
	}
	a.metrics.ObserveDecision(string(g.verb), g.scheduler, resultOf(result.Granted, len(refusals)))
	return answer, nil
}

// absent finds the UIDs of the pods a request assumes to be gone.
func (a *API) absent(names []podName) ([]types.UID, error) {
	uids := make([]types.UID, 0, len(names))
	for i, name := range names {
		if name.UID != "" {
			uids = append(uids, name.UID)
			continue
		}
		ref := a.claimedRef(ledger.PodRef{Namespace: name.Namespace, Name: name.Name})
		if ref.UID == "" {
			return nil, badRequest("Without[%d]: no pod %s with a UID is known: check its name, or send its UID", i, ref)
		}
		uids = append(uids, ref.UID)
	}
	return uids, nil
}

// propose chooses a node for each pod, in order, each next to those before. A
// pod that has room stays where it is. One that fits nowhere gets the node where
// it lacks least, so that the ledger's refusal tells what is missing.
func (a *API) propose(placements []ledger.Placement, without []types.UID) {
	gone := make(map[types.UID]bool, len(without))
	for _, uid := range without {
		gone[uid] = true
	}
	s := newSurvey(a.ledger, without)
	for i := range placements {
		p := &placements[i]
		if view, ok := a.ledger.Claim(p.Pod); ok && !gone[view.Pod.UID] {
			p.Node = view.Node
			continue
		}
		if view, ok := a.ledger.HoldFor(p.Pod); ok {
			p.Node = view.Node
			continue
		}
		n := s.bestFit(p)
		if n != nil {
			s.take(n, p.Request)
		} else if n = s.closest(p); n == nil {
			continue // there is no node: the ledger refuses the empty name
		}
		p.Node = n.name
	}
}
