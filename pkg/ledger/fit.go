package ledger

import (
	"slices"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// fit checks a pod against a node: by use of a hold there, or, where h is nil, in the
// node's free capacity. It is the one place that says whether something fits. For
// pods without devices it allocates nothing, and its cost does not depend on how many
// pods are on the node. What is to be left out of the account is taken off it before
// (Trial).
func (l *account) fit(i int32, p *Placement, h *hold) Verdict {
	return l.fitWith(i, p, h, l.flags[i], nil)
}

// fitWith is fit for a node with these flags. had are devices the pod may keep if it
// asks for the same as before; nil for a pod that had none.
func (l *account) fitWith(i int32, p *Placement, h *hold, flags uint8, had []GivenDevices) Verdict {
	if flags&nodeKnown == 0 {
		return Verdict{Reason: NodeUnknown}
	}
	if p.Devices != nil {
		if v := l.claimsUsable(p, h); v.Reason != Fits {
			return v
		}
	}
	req := p.Request
	if flags&nodeCordoned != 0 && !req.ToleratesUnschedulable {
		return Verdict{Reason: NodeUnschedulable}
	}
	row := l.row(i)
	for k := range req.Amounts {
		a := &req.Amounts[k]
		more := a.Value
		if h != nil {
			more -= min(more, h.rest.Value(a.Column))
			if more > 0 && h.restricts(a.Column) {
				return Verdict{Reason: InsufficientResource, Column: a.Column}
			}
		}
		if int(a.Column) >= len(row) || more > row[a.Column] {
			return Verdict{Reason: InsufficientResource, Column: a.Column}
		}
	}
	if len(req.Unlisted) > 0 {
		return Verdict{Reason: InsufficientResource, Unlisted: true}
	}
	if len(req.Ports) > 0 && l.portTaken(i, req, h) != nil {
		return Verdict{Reason: HostPortConflict}
	}
	if p.Devices != nil {
		return l.fitsDevices(i, p, h, had)
	}
	return Verdict{Reason: Fits}
}

// restricts reports whether pods may use no more of a resource than the hold
// has. The pod count is not a resource a reservation names.
func (h *hold) restricts(col resources.Column) bool {
	return h.Policy == Restricted && col != resources.Pods && h.Request.Value(col) > 0
}

// open reports whether a hold takes another pod now.
func (h *hold) open() bool {
	taken := h.Policy == Once && h.used()
	return !taken && !h.overdue && !h.away
}

// fitAny checks a pod that has nothing yet against a node: with the first of its
// holds there that will do, else in the node's free capacity.
func (l *account) fitAny(i int32, p *Placement, candidates []*hold) (*hold, Verdict) {
	for _, h := range candidates {
		if h.node == i && h.open() && l.fit(i, p, h).Reason == Fits {
			return h, Verdict{Reason: Fits}
		}
	}
	return nil, l.fit(i, p, nil)
}

// fitInPlace checks whether the slot a pod has in memory can be used for what the pod
// asks for now: as if there was nothing in its place. That fails where the node has
// vanished or lost capacity since it was made: the kubelet would reject the pod. A
// node cordoned since does not matter. The slot must be off the account.
func (l *account) fitInPlace(g *hold, p *Placement) Verdict {
	return l.fitWith(g.node, p, g.within, l.flags[g.node]&^nodeCordoned, g.keeps(p.Devices))
}

// portTaken returns the first host port of the request that a claim or a hold on
// the node collides with, or nil. A hold's own ports are free for those who use it.
func (l *account) portTaken(i int32, req *resources.Request, h *hold) *resources.HostPort {
	n := l.nodes[i]
	for k := range req.Ports {
		p := &req.Ports[k]
		for _, u := range n.ports[p.PortKey] {
			mine := h != nil && u.hold == h
			if !mine && p.CollidesWith(resources.HostPort{PortKey: p.PortKey, IP: u.ip}) {
				return p
			}
		}
	}
	return nil
}

// AppendFit appends one Verdict per node name to dst: whether the pod's bind could begin
// there now, with one of its holds or without, and, where p.Preempt says so, by ending
// others. p.Node is not looked at. A pod that has a claim, or a slot in memory, fits no
// other node than that one, and that one as long as a slot there can be used.
func (l Reader) AppendFit(dst []Verdict, p *Placement, nodes []string) []Verdict {
	l.mu.RLock()
	if !p.Preempt && l.inMemory(p.Pod) == nil {
		defer l.mu.RUnlock()
		return l.appendFit(dst, p, nodes)
	}
	l.mu.RUnlock()
	l.mu.Lock() // something is taken off the account for the length of the question
	defer l.mu.Unlock()
	return l.appendFit(dst, p, nodes)
}

func (l *account) appendFit(dst []Verdict, p *Placement, nodes []string) []Verdict {
	own, slot := l.lookup(p.Pod), (*hold)(nil)
	if own == nil {
		slot = l.inMemory(p.Pod)
	}
	gone := own == nil && l.gone.has(p.Pod.UID)
	offers := newOffers(l.candidates(p))
	var x *preemptor
	for _, name := range nodes {
		v := Verdict{Reason: ClaimedElsewhere}
		i, known := l.nodeIndex[name]
		switch {
		case gone:
			v.Reason = PodGone
		case known && own != nil && own.node == i:
			v.Reason = Fits
		case known && slot != nil && slot.node == i:
			at := l.detach(slot)
			v = l.fitInPlace(slot, p)
			l.attach(slot, at)
		case !known || l.flags[i]&nodeKnown == 0:
			v.Reason = NodeUnknown
		case own == nil && slot == nil:
			_, v = l.fitAny(i, p, offers.on(i))
			if p.Preempt && v.shortOfRoom() {
				if x == nil {
					x = l.newPreemptor(p.Priority, offers)
				}
				if victims := x.all(i); len(victims) > 0 && x.fits(i, p, victims) {
					v = Verdict{Reason: Fits}
				}
			}
		}
		dst = append(dst, v)
	}
	return dst
}

// Refusals returns the nodes that exist and have no room for the pod, with the reasons,
// and how many nodes exist: where a pod is to be looked at on many nodes, one look at all
// of them costs much less than AppendFit for each. ok is false where more than most
// refuse it, or where the answer is not only about room: the pod has a claim, there is a
// hold it might use, or it is gone.
func (l Reader) Refusals(p *Placement, most int) (refused map[string]Reason, nodes int, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.placed(p.Pod) || l.gone.has(p.Pod.UID) || len(l.candidates(p)) > 0 {
		return nil, 0, false
	}
	for i, flags := range l.flags {
		if flags&nodeKnown == 0 {
			continue
		}
		nodes++
		v := l.fit(int32(i), p, nil)
		if v.Reason == Fits {
			continue
		}
		if len(refused) == most {
			return nil, 0, false
		}
		if refused == nil {
			refused = map[string]Reason{}
		}
		refused[l.nodes[i].name] = v.Reason
	}
	return refused, nodes, true
}

// placed reports whether a pod has a claim, or a slot in memory.
func (l *account) placed(pod PodRef) bool { return l.lookup(pod) != nil || l.inMemory(pod) != nil }

// FitAll calls visit for every node that exists, in no particular order, with whether
// the pod fits its free capacity, until visit returns false. It does not look at what
// the pod may have already, nor at holds it may use, and p.Node is not looked at. visit
// must not call the ledger.
func (l Reader) FitAll(p *Placement, visit func(node string, v Verdict) (more bool)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	l.fitAll(p, visit)
}

// FitsAnywhere reports whether the pod fits the free capacity of some node, as FitAll does.
func (l Reader) FitsAnywhere(p *Placement) (fits bool) {
	l.FitAll(p, func(_ string, v Verdict) bool {
		fits = v.Reason == Fits
		return !fits
	})
	return fits
}

func (l *account) fitAll(p *Placement, visit func(node string, v Verdict) (more bool)) {
	for i, flags := range l.flags {
		if flags&nodeKnown != 0 && !visit(l.nodes[i].name, l.fit(int32(i), p, nil)) {
			return
		}
	}
}

// candidates lists the holds a pod may use: those kept for it alone, and those
// its placement names, in that order. The caller has matched the named ones;
// that none crosses a namespace is checked here again.
func (l *account) candidates(p *Placement) []*hold {
	if len(l.holds) == 0 {
		return nil
	}
	found := slices.DeleteFunc(l.keptFor(p.Pod), func(h *hold) bool { return h.InMemory() })
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
