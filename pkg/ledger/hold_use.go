package ledger

import (
	"cmp"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// candidates lists the holds a pod may use: those kept for it alone, and those
// its placement names, in that order. The caller has matched the named ones;
// that none crosses a namespace is checked here again.
func (l *Ledger) candidates(p *Placement) []*hold {
	if len(l.holds) == 0 {
		return nil
	}
	var found []*hold
	for _, h := range l.holdsByPod[p.Pod.key()] {
		if h.isFor(p.Pod) {
			found = append(found, h)
		}
	}
	for _, ref := range p.Holds {
		h := l.holds[ref]
		if h != nil && h.Pod.Name == "" && ref.Namespace == p.Pod.Namespace && !slices.Contains(found, h) {
			found = append(found, h)
		}
	}
	return found
}

// usable returns the first of the candidates on a node that has room for a
// request, or nil.
func (l *Ledger) usable(candidates []*hold, i int32, req *resources.Request) *hold {
	for _, h := range candidates {
		if h.node == i && l.fitsHold(h, req) {
			return h
		}
	}
	return nil
}

// fitsHold checks whether a pod may use a hold now: the hold is free for it, and
// what it asks for beyond the hold's rest is free on the node.
func (l *Ledger) fitsHold(h *hold, req *resources.Request) bool {
	flags := l.flags[h.node]
	cordoned := flags&nodeCordoned != 0 && !req.ToleratesUnschedulable
	taken := h.Policy == Once && len(h.consumers) > 0
	if flags&nodeKnown == 0 || cordoned || taken || h.overdue || len(req.Unlisted) > 0 {
		return false
	}
	row := l.row(h.node)
	for _, a := range req.Amounts {
		rest := h.rest.Value(a.Column)
		if h.restricts(a.Column) && a.Value > rest {
			return false
		}
		if resources.Sub(a.Value, min(rest, a.Value)) > at(row, a.Column) {
			return false
		}
	}
	return l.portTaken(h.node, req, func(u portUse) bool { return u.hold == h }) == nil
}

// restricts reports whether pods may use no more of a resource than the hold
// has. The pod count is not a resource a reservation names.
func (h *hold) restricts(col resources.Column) bool {
	return h.Policy == Restricted && col != resources.Pods && h.Request.Value(col) > 0
}

// fitsAny checks a pod without a claim against a node: with one of its holds
// there, else in the node's free room.
func (l *Ledger) fitsAny(i int32, p *Placement, candidates []*hold) (*hold, Verdict) {
	if h := l.usable(candidates, i, p.Request); h != nil {
		return h, Verdict{Reason: Fits}
	}
	return nil, l.fits(i, p.Request)
}

// preemptible lists the holds on a node that a pod may end because they allow it
// and its priority is higher, lowest priority first.
func (l *Ledger) preemptible(i int32, p *Placement) []*hold {
	var found []*hold
	for _, h := range l.nodes[i].holds {
		if h.Preemptible && h.Priority < p.Priority && !h.binding() {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, func(a, b *hold) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Ref.String(), b.Ref.String()))
	})
	return found
}

// fitsPreempting checks a request as if some holds of the node were gone.
func (l *Ledger) fitsPreempting(i int32, req *resources.Request, gone []*hold) bool {
	for _, a := range req.Amounts {
		free := at(l.row(i), a.Column)
		for _, h := range gone {
			free, _ = resources.Add(free, h.rest.Value(a.Column))
		}
		if a.Value > free {
			return false
		}
	}
	taken := l.portTaken(i, req, func(u portUse) bool { return u.hold != nil && slices.Contains(gone, u.hold) })
	return len(req.Unlisted) == 0 && taken == nil
}

// preempt ends as few reservations as it must, lowest priority first, so that
// the pod fits the node, and reports whether it does. A reservation ends as a
// whole, on all its nodes. Nothing is ended where that would not help.
func (l *Ledger) preempt(i int32, p *Placement) bool {
	flags := l.flags[i]
	if flags&nodeKnown == 0 || (flags&nodeCordoned != 0 && !p.Request.ToleratesUnschedulable) {
		return false
	}
	victims := l.preemptible(i, p)
	needed := 0
	for needed < len(victims) && !l.fitsPreempting(i, p.Request, victims[:needed]) {
		needed++
	}
	if !l.fitsPreempting(i, p.Request, victims[:needed]) {
		return false
	}
	for _, victim := range victims[:needed] {
		for _, h := range slices.Clone(l.reservations[victim.Ref.reservation()]) {
			l.endHold(h, HoldPreempted, p.Pod)
		}
	}
	return true
}
