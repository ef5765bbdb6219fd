package ledger

import (
	"slices"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// candidates lists the holds a pod may use: those kept for it alone, and those
// its placement names, in that order. The caller has matched the named ones;
// that none crosses a namespace is checked here again.
func (l *account) candidates(p *Placement) []*hold {
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
		if h := l.holds[ref]; h != nil && h.Pod.Name == "" && ref.Namespace == p.Pod.Namespace {
			found = append(found, h)
		}
	}
	return found
}

// fewCandidates are quickly looked through for each node a pod is asked about.
const fewCandidates = 8

// offers are the candidates of a pod, by node where there are many.
type offers struct {
	few    []*hold
	byNode map[int32][]*hold
}

func newOffers(candidates []*hold) offers {
	if len(candidates) <= fewCandidates {
		return offers{few: candidates}
	}
	byNode := make(map[int32][]*hold, len(candidates))
	for _, h := range candidates {
		byNode[h.node] = append(byNode[h.node], h)
	}
	return offers{byNode: byNode}
}

// on returns all candidates on a node, and perhaps others.
func (o *offers) on(i int32) []*hold {
	if o.byNode != nil {
		return o.byNode[i]
	}
	return o.few
}

// fitsAny checks a pod without a claim against a node: with the first of its
// holds there that will do, else in the node's free room.
func (l *account) fitsAny(i int32, p *Placement, candidates []*hold) (*hold, Verdict) {
	for _, h := range candidates {
		if h.node == i && l.fitsHold(h, p) {
			return h, Verdict{Reason: Fits}
		}
	}
	return nil, l.fitsFree(i, p)
}

// fitsHold checks whether a pod may use a hold now: the hold is free for it, and
// what it asks for beyond the hold's rest is free on the node.
func (l *account) fitsHold(h *hold, p *Placement) bool {
	return l.open(h, p.Request) && l.fitsWith(h.node, p, h, nil)
}

// open reports whether a hold can be used at all by a pod that asks for req.
func (l *account) open(h *hold, req *resources.Request) bool {
	taken := h.Policy == Once && len(h.consumers) > 0
	return l.schedulable(h.node, req) && !taken && !h.overdue
}

// schedulable reports whether a node exists and is not cordoned against a pod.
func (l *account) schedulable(i int32, req *resources.Request) bool {
	flags := l.flags[i]
	return flags&nodeKnown != 0 && (flags&nodeCordoned == 0 || req.ToleratesUnschedulable)
}

// fitsWith checks the amounts, host ports and devices a pod asks for against a node:
// by use of a hold, if h is not nil, and as if the holds in gone had ended.
func (l *account) fitsWith(i int32, p *Placement, h *hold, gone []*hold) bool {
	req := p.Request
	if p.Devices != nil && l.fitsDevices(i, p, &except{hold: h, gone: gone}).Reason != Fits {
		return false
	}
	for _, a := range req.Amounts {
		var rest int64
		if h != nil {
			rest = h.rest.Value(a.Column)
			if h.restricts(a.Column) && a.Value > rest {
				return false
			}
		}
		if a.Value-min(rest, a.Value) > l.freeWithout(i, a.Column, nil, gone) {
			return false
		}
	}
	return len(req.Unlisted) == 0 && l.portTaken(i, req, func(u portUse) bool {
		return u.hold != nil && (u.hold == h || slices.Contains(gone, u.hold))
	}) == nil
}

// restricts reports whether pods may use no more of a resource than the hold
// has. The pod count is not a resource a reservation names.
func (h *hold) restricts(col resources.Column) bool {
	return h.Policy == Restricted && col != resources.Pods && h.Request.Value(col) > 0
}

// freeWithout returns what would be free of a resource on a node without one
// claim and some holds. A sum that has no int64 is counted anew: nothing can be
// taken from it.
func (l *account) freeWithout(i int32, col resources.Column, absent *claim, gone []*hold) int64 {
	n := l.nodes[i]
	if !n.saturated || (absent == nil && len(gone) == 0) {
		free := at(l.row(i), col)
		if absent != nil {
			free, _ = resources.Add(free, absent.request.Value(col))
			if h := absent.hold; h != nil { // what the claim leaves, its hold keeps again
				free = resources.Sub(free, h.restWithout(absent, col)-h.rest.Value(col))
			}
		}
		for _, h := range gone {
			free, _ = resources.Add(free, h.rest.Value(col))
		}
		return free
	}
	var used int64
	for c := n.claims; c != nil; c = c.next {
		if c != absent {
			used, _ = resources.Add(used, c.request.Value(col))
		}
	}
	for _, h := range n.holds {
		if !slices.Contains(gone, h) {
			used, _ = resources.Add(used, h.restWithout(absent, col))
		}
	}
	return resources.Sub(at(n.allocatable, col), used)
}

// restWithout returns what the hold would keep of a resource beyond what its
// consumers other than one ask for.
func (h *hold) restWithout(absent *claim, col resources.Column) int64 {
	if absent == nil || absent.hold != h {
		return h.rest.Value(col)
	}
	var asked int64
	for _, c := range h.consumers {
		if c != absent {
			asked, _ = resources.Add(asked, c.request.Value(col))
		}
	}
	return max(0, resources.Sub(h.Request.Value(col), asked))
}
