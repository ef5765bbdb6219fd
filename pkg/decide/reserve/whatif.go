package reserve

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// WhatIf decides what Reserve would, now or if some pods were gone, and chooses the nodes where the gang names none. It
// changes nothing. Its errors are those of Reserve. It does all waiting itself and returns decide, which only computes.
func (a *Arbiter) WhatIf(ctx context.Context, g *Request, gone []ledger.PodRef) (decide func() *Decision, err error) {
	if err := a.o.Ledger.Ready(); err != nil {
		return nil, err
	}
	without, err := a.absent(gone)
	if err != nil {
		return nil, err
	}
	placements, screened, err := a.resolve(ctx, g, a.findAll(ctx, g))
	if err != nil {
		return nil, err
	}
	return func() *Decision { return a.whatIf(g, placements, screened, without) }, nil
}

func (a *Arbiter) whatIf(g *Request, placements []ledger.Placement, screened []Refusal, without []types.UID) *Decision {
	if g.Pods[0].Node == "" {
		a.propose(placements, notRefused(len(placements), screened), without)
	}
	var result ledger.Result
	a.o.Ledger.Try(func(t *ledger.Trial) {
		t.Remove(without...)
		result = t.Reserve(ledger.NewPlan(keep(placements, screened), ledger.Partial, time.Time{}))
	})
	d := newDecision(placements, merge(placements, screened, result.Rejections), result.Revision)
	if d.Granted = len(placements) - len(d.Refusals); len(d.Refusals) > 0 &&
		(g.Mode == ledger.AllOrNothing || d.Granted == 0) {
		d.Granted, d.Error = 0, d.errorText("nothing would be reserved")
	}
	a.o.Metrics.ObserveDecision("whatif", g.Scheduler, resultOf(d.Granted, len(d.Refusals)))
	return d
}

// absent finds the UIDs of the pods that are taken to be gone.
func (a *Arbiter) absent(gone []ledger.PodRef) ([]types.UID, error) {
	uids := make([]types.UID, 0, len(gone))
	for i, ref := range gone {
		if ref.UID == "" {
			ref = a.completed(ref)
		}
		if ref.UID == "" {
			return nil, invalid("Without[%d]: no pod %s with a UID is known: check its name, or send its UID", i, ref)
		}
		uids = append(uids, ref.UID)
	}
	return uids, nil
}

// propose chooses a node for each of the open pods, in order, each next to those before. A
// pod that has capacity stays where it is. One that fits nowhere gets the node where
// it lacks least, so that the ledger's refusal says what is missing.
func (a *Arbiter) propose(placements []ledger.Placement, open []int, without []types.UID) {
	gone := sets.New(without...)
	s := a.o.Ledger.Survey(without...)
	anywhere := func(string) bool { return true }
	for _, i := range open {
		p := &placements[i]
		if node, ok := a.o.Ledger.HomeOf(p.Pod); ok && !gone.Has(p.Pod.UID) {
			p.Node = node
			continue
		}
		if view, ok := a.o.Ledger.SlotFor(p.Pod); ok {
			p.Node = view.Node
			continue
		}
		if p.Node = s.BestFit(p, anywhere); p.Node != "" {
			s.Take(p)
		} else {
			p.Node = s.Closest(p) // where there is no node the ledger refuses the empty name
		}
	}
}
