package ledger

import (
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// fit checks a pod against a node, all except the budgets (limiter): by use of slot h there, or, where h is nil, in the
// node's free capacity. It is the one place that says whether something fits. For pods without devices it allocates
// nothing, and its cost does not depend on how many pods are on the node. place is the slot in memory, off the account,
// that turns into the pod's allocation, or nil: where there is one, a cordon of the node does not matter.
func (l *account) fit(i int32, p *Placement, h, place *entry) Verdict {
	v := l.fitCapacity(i, p.Request, l.rowFor(i, p, place), h, place)
	if p.Devices != nil || l.flags[i]&(hasDevices|usesDRA) != 0 {
		v = l.andDevices(v, i, p, h, place)
	}
	return v
}

// andDevices is the verdict on a pod with devices, or on a node with some, given that on the rest. Where the claims of
// a pod are too many, by count as well, it is about the claims. What is left to DRA is not kept for any pod.
func (l *account) andDevices(v Verdict, i int32, p *Placement, h, place *entry) Verdict {
	if p.Devices != nil {
		if usable := l.claimsUsable(p, h); v.Reason != NodeUnknown && usable.Reason != Fits {
			return usable
		}
	}
	if v.Reason == Fits && l.flags[i]&hasDevices != 0 {
		if col, short := l.notOffered(i, p); short {
			v = Verdict{Reason: InsufficientResource, Column: col}
		}
	}
	if v.Reason == Fits && p.NoDRA && l.flags[i]&usesDRA != 0 {
		if col, short := l.notGiven(i, p.Request); short {
			v = Verdict{Reason: InsufficientResource, Column: col}
		}
	}
	claimsIt := p.Devices != nil && v.Reason == InsufficientResource && !v.Unlisted &&
		p.Devices.countOf(string(l.table.Name(v.Column))) > 0
	if p.Devices == nil || (v.Reason != Fits && !claimsIt) {
		return v
	}
	if named := l.fitsDevices(i, p, h, place.keeps(p.Devices)); named.Reason != Fits {
		return named
	}
	return v
}

// fitCapacity is fit without devices. row is what is free there.
func (l *account) fitCapacity(i int32, req *resources.Request, row []int64, h, place *entry) Verdict {
	flags := l.flags[i]
	if flags&nodeKnown == 0 {
		return Verdict{Reason: NodeUnknown}
	}
	if flags&nodeCordoned != 0 && !req.ToleratesUnschedulable && place == nil {
		return Verdict{Reason: NodeUnschedulable}
	}
	if h != nil {
		if col, short := h.lacks(req, row); short {
			return Verdict{Reason: InsufficientResource, Column: col}
		}
	} else {
		for k := range req.Amounts {
			a := &req.Amounts[k]
			if int(a.Column) >= len(row) || a.Value > row[a.Column] {
				return Verdict{Reason: InsufficientResource, Column: a.Column}
			}
		}
	}
	if len(req.Unlisted) > 0 {
		return Verdict{Reason: InsufficientResource, Unlisted: true}
	}
	if len(req.Ports) > 0 {
		switch p := l.portTaken(i, req, h); {
		case p == nil:
		case p.IsTerm():
			return Verdict{Reason: AntiAffinity}
		default:
			return Verdict{Reason: HostPortConflict}
		}
	}
	return Verdict{Reason: Fits}
}

// lacks returns the first resource of which a pod asks for more than is free on the slot's node
// beside what the slot counts for, or than the slot has, if it may use no more.
func (e *entry) lacks(req *resources.Request, row []int64) (col resources.Column, short bool) {
	for _, a := range req.Amounts {
		more := a.Value - min(a.Value, e.counts.Value(a.Column))
		if int(a.Column) >= len(row) || more > row[a.Column] || (more > 0 && e.restricts(a.Column)) {
			return a.Column, true
		}
	}
	return 0, false
}

// restricts reports whether pods may use no more of a resource than the slot
// has. The pod count is not a resource a reservation names.
func (e *entry) restricts(col resources.Column) bool {
	return e.slot.policy == Restricted && col != resources.Pods && e.request.Value(col) > 0
}

// open reports whether the slot of a reservation takes another pod now.
func (e *entry) open() bool {
	taken := e.slot.policy == Once && e.used()
	return !taken && !e.overdue && !e.away
}

// fitAny checks a pod that has nothing yet against a node, within what its budgets leave: with
// the first of the slots it may use there that will do, else in the node's free capacity.
func (l *account) fitAny(i int32, p *Placement, candidates []*entry, m *limiter) (*entry, Verdict) {
	for _, h := range candidates {
		if h.node == i && h.open() && l.fitWithin(h, p, m) {
			return h, Verdict{Reason: Fits}
		}
	}
	if m.whole.Reason != Fits && l.flags[i]&nodeKnown != 0 {
		return nil, m.whole
	}
	return nil, l.fit(i, p, nil, nil)
}

// fitWithin reports whether a pod could use a slot that is open.
func (l *account) fitWithin(h *entry, p *Placement, m *limiter) bool {
	return m.within(p.Request, h).Reason == Fits && l.fit(h.node, p, h, nil).Reason == Fits
}

// fitSlot checks a slot of a reservation against a node and its budgets.
func (l *account) fitSlot(i int32, p *Placement) Verdict {
	m := l.limiterOf(p, p.Caller)
	_, v := l.fitAny(i, p, nil, &m)
	if v.Reason == Fits {
		v = m.keep(p.Request, nil, nil)
	}
	return v
}

// fitInPlace checks whether what is kept for a pod in memory, and is off the account now, may
// turn into what the placement asks for.
func (l *account) fitInPlace(e *entry, p *Placement) Verdict {
	m := l.limiterOf(p, e.caller)
	if v := m.use(p.Request, e.within, e); v.Reason != Fits && l.flags[e.node]&nodeKnown != 0 {
		return v
	}
	return l.fit(e.node, p, e.within, e)
}

// portTaken returns the first host port of the request that something on the node
// collides with, or nil. A slot's own ports are free for its users. Where the node has no
// hostname, anti-affinity by that does not hold there (kube-scheduler's InterPodAffinity).
func (l *account) portTaken(i int32, req *resources.Request, h *entry) *resources.HostPort {
	n := l.nodes[i]
	for k := range req.Ports {
		p := &req.Ports[k]
		if _, named := n.labels[v1.LabelHostname]; !named && p.IsTerm() {
			continue
		}
		for _, u := range n.ports[p.PortKey] {
			mine := h != nil && u.by == h
			if !mine && p.CollidesWith(u.HostPort) {
				return p
			}
		}
	}
	return nil
}

// AppendFit appends one Verdict per node name to dst: whether the pod's bind could begin there now, with one of its
// slots or without, and, where p.Preempt says so, by ending others. p.Node is not looked at. A pod that has an
// allocation, or a slot in memory, fits no other node than that one, and that one as long as a slot there can be used.
func (l Reader) AppendFit(dst []Verdict, p *Placement, nodes []string) []Verdict {
	l.mu.RLock()
	if own := l.find(p.Pod); !p.Preempt && (own == nil || own.isAllocation()) {
		defer l.mu.RUnlock()
		return l.appendFit(dst, p, nodes, own)
	}
	l.mu.RUnlock()
	l.mu.Lock() // something is taken off the account for the length of the question
	defer l.mu.Unlock()
	return l.appendFit(dst, p, nodes, l.find(p.Pod))
}

// appendFit is AppendFit for a pod that has own, or nothing. A movable slot does not keep its pod from other nodes.
func (l *account) appendFit(dst []Verdict, p *Placement, nodes []string, own *entry) []Verdict {
	if own == nil || !own.movable {
		return l.appendVerdicts(dst, p, nodes, own)
	}
	l.setAside(own)
	defer l.putBack(own)
	first := len(dst)
	dst = l.appendVerdicts(dst, own.named(p), nodes, nil)
	if k := slices.Index(nodes, l.names[own.node]); k >= 0 {
		dst[first+k] = l.fitInPlace(own, p)
	}
	return dst
}

func (l *account) appendVerdicts(dst []Verdict, p *Placement, nodes []string, own *entry) []Verdict {
	gone := own == nil && l.gone.has(p.Pod.UID)
	offers, m := l.offersTo(p), l.limiterOf(p, p.Caller)
	var x *preemptor
	for _, name := range nodes {
		var v Verdict
		i, known := l.nodeIndex[name]
		switch {
		case gone:
			v.Reason = PodGone
		case !known:
			v.Reason = NodeUnknown
		case own == nil:
			_, v = l.fitAny(i, p, offers[i], &m)
			if p.Preempt && (v.Reason.OfCapacity() || v.overLimit()) {
				if x == nil {
					x = l.newPreemptor(p.Priority, offers)
				}
				if victims := x.all(i); len(victims) > 0 && x.fits(i, p, victims) {
					v = Verdict{Reason: Fits}
				}
			}
		case own.node == i && !own.isAllocation():
			l.detach(own)
			v = l.fitInPlace(own, p)
			l.attach(own)
		case own.node == i:
		case l.flags[i]&nodeKnown == 0:
			v.Reason = NodeUnknown
		default:
			v.Reason = AllocatedElsewhere
		}
		dst = append(dst, v)
	}
	return dst
}

// Refusals returns the nodes that exist and have no capacity for the pod, with the reasons, and how many nodes exist:
// where a pod is to be looked at on many nodes, one look at all of them costs much less than AppendFit for each. ok is
// false where more than most refuse it, or where the answer is not only about capacity: the pod has an allocation,
// there is a slot it might use, or it is gone.
func (l Reader) Refusals(p *Placement, most int) (refused map[string]Reason, nodes int, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.find(p.Pod) != nil || l.gone.has(p.Pod.UID) || len(l.candidates(p)) > 0 {
		return nil, 0, false
	}
	m := l.limiterOf(p, p.Caller)
	for i, flags := range l.flags {
		if flags&nodeKnown == 0 {
			continue
		}
		nodes++
		_, v := l.fitAny(int32(i), p, nil, &m)
		if v.Reason == Fits {
			continue
		}
		if len(refused) == most {
			return nil, 0, false
		}
		if refused == nil {
			refused = map[string]Reason{}
		}
		refused[l.names[i]] = v.Reason
	}
	return refused, nodes, true
}

// FitAll calls visit for every node that exists, in no particular order, with whether the pod fits its free capacity,
// until visit returns false. It does not look at what the pod may have already, nor at slots it may use, and p.Node is
// not looked at. visit must not call the ledger.
func (l Reader) FitAll(p *Placement, visit func(node string, v Verdict) (more bool)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	l.fitAll(p, visit)
}

func (l *account) fitAll(p *Placement, visit func(node string, v Verdict) (more bool)) {
	over := l.limiterOf(p, p.Caller).whole
	for i, flags := range l.flags {
		if flags&nodeKnown == 0 {
			continue
		}
		v := over
		if over.Reason == Fits {
			row := l.row(int32(i))
			if flags&hasNominated != 0 {
				row = l.rowFor(int32(i), p, nil)
			}
			v = l.fitCapacity(int32(i), p.Request, row, nil, nil) // and not fit, which is one call more for every node
		}
		if over.Reason == Fits && (p.Devices != nil || flags&(hasDevices|usesDRA) != 0) {
			v = l.andDevices(v, int32(i), p, nil, nil)
		}
		if !visit(l.names[i], v) {
			return
		}
	}
}

// Rooms calls visit for every node with free capacity for the pod, in no particular order, with how many pods like it
// there is capacity for, until visit returns false. For pods with host ports or devices that is one. Limits do not
// count, and p.Node is not looked at. visit must not call the ledger.
func (l Reader) Rooms(p *Placement, visit func(node string, count int64) (more bool)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i, flags := range l.flags {
		if flags&nodeKnown == 0 || l.fit(int32(i), p, nil, nil).Reason != Fits {
			continue
		}
		if !visit(l.names[i], l.howMany(int32(i), p)) {
			return
		}
	}
}

// howMany returns how many pods like one that fits a node there is capacity for.
func (l *account) howMany(i int32, p *Placement) int64 {
	if len(p.Request.Ports) > 0 || p.Devices != nil {
		return 1
	}
	count := int64(math.MaxInt64)
	row := l.rowFor(i, p, nil)
	for _, a := range p.Request.Amounts {
		if a.Value > 0 {
			count = min(count, row[a.Column]/a.Value)
		}
	}
	return count
}

// FitsAnywhere reports whether the pod fits the free capacity of some node, as FitAll does.
func (l Reader) FitsAnywhere(p *Placement) (fits bool) {
	l.FitAll(p, func(_ string, v Verdict) bool {
		fits = v.Reason == Fits
		return !fits
	})
	return fits
}

// candidates lists the slots a pod may use: those kept for it alone, and those its placement names, in that order. The
// caller has matched the named ones. candidates checks again that none crosses a namespace.
func (l *account) candidates(p *Placement) []*entry {
	if len(l.slots) == 0 {
		return nil
	}
	found := slices.DeleteFunc(l.named[p.Pod.key()].keptFor(p.Pod), (*entry).inMemory)
	for _, ref := range p.Slots {
		if h := l.slots[ref]; h != nil && h.pod.Name == "" && ref.Namespace == p.Pod.Namespace {
			found = append(found, h)
		}
	}
	return found
}

// offersTo returns the candidates of a pod, by node.
func (l *account) offersTo(p *Placement) (offers map[int32][]*entry) {
	for _, h := range l.candidates(p) {
		if offers == nil {
			offers = map[int32][]*entry{}
		}
		offers[h.node] = append(offers[h.node], h)
	}
	return offers
}
