package ledgermodel

import (
	"cmp"
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// bindElsewhere binds a pod on another node than that of its movable slot, if there is capacity.
func (m *Model) bindElsewhere(own *modelAllocation, p *ledger.Placement) (ledger.Grant, *ledger.Rejection) {
	p = own.named(p)
	after := m.clone()
	after.forget(after.find(p.Pod))
	c, rejection := after.admit(p, ledger.Binding)
	if rejection != nil && p.Preempt && rejection.Reason != ledger.DeviceClaimInUse && after.preempt(p) {
		c, rejection = after.admit(p, ledger.Binding)
	}
	if rejection != nil {
		rejection.AllocatedOn = own.node
		return ledger.Grant{}, rejection
	}
	after.tell(ledger.SlotReleased, own)
	after.giveCounted(c)
	after.tell(ledger.AllocationBinding, after.add(*c))
	*m = *after
	return ledger.Grant{Slot: c.uses, Caller: c.caller, Devices: c.given}, nil
}

// named is a placement of the pod that has something already.
func (c *modelAllocation) named(p *ledger.Placement) *ledger.Placement {
	at := *p
	at.Pod.UID = cmp.Or(p.Pod.UID, c.pod.UID)
	return &at
}

// StartBindWith binds a pod, gives up what is kept in memory for some, and keeps something for others, on a copy. It
// keeps the copy if all of that can be done.
func (m *Model) StartBindWith(p *ledger.Placement, x *ledger.Exchange,
	now time.Time,
) (ledger.Grant, *ledger.Rejection) {
	m.Expire(now)
	if own := m.find(p.Pod); own != nil && !own.inMemory() {
		return m.StartBind(p, now)
	}
	after := m.clone()
	after.base = m
	bound, kept, rejection := after.exchange(p, x)
	after.base = nil
	if rejection != nil {
		return ledger.Grant{}, rejection
	}
	own := bound.allocation
	if bound.from != nil {
		after.tell(ledger.SlotReleased, bound.from)
	}
	if bound.named || !bound.fresh && slices.ContainsFunc(kept,
		func(g *grant) bool { return g.allocation == own && g.named }) {
		after.tell(ledger.SlotIdentified, own)
	}
	after.begin(own, p.Pod, ledger.Binding)
	own.request = p.Request
	after.giveCounted(own)
	after.tell(ledger.AllocationBinding, own)
	for _, g := range kept {
		after.keep(g)
	}
	*m = *after
	return ledger.Grant{Slot: own.uses, Caller: own.caller, Devices: own.given}, nil
}

// Exchange gives up what is kept in memory for some pods and keeps something for others, on a copy.
func (m *Model) Exchange(x *ledger.Exchange, now time.Time) *ledger.Rejection {
	m.Expire(now)
	after := m.clone()
	after.base = m
	_, kept, rejection := after.exchange(nil, x)
	after.base = nil
	if rejection != nil {
		return rejection
	}
	for _, g := range kept {
		after.keep(g)
	}
	*m = *after
	return nil
}

// exchange does what an exchange asks for, but for telling of what is made.
func (m *Model) exchange(p *ledger.Placement, x *ledger.Exchange) (bound *grant, kept []*grant,
	rejection *ledger.Rejection,
) {
	for _, pod := range x.GiveUp {
		if c := m.find(pod); c != nil && c.inMemory() && c.movable {
			m.forget(c)
			m.tell(ledger.SlotReleased, c)
		}
	}
	short := &ledger.Rejection{Reason: ledger.GangUnplaced}
	if p != nil {
		if bound, rejection = m.tryBound(p); rejection != nil {
			return nil, nil, rejection
		}
		short.Pod, short.Node = p.Pod, p.Node
	}
	for k := range x.Keep {
		grants, n, rejection := m.tryChoice(&x.Keep[k])
		if rejection != nil {
			return nil, nil, rejection
		}
		kept = append(kept, grants...)
		short.Requested, short.Free = short.Requested+int64(len(x.Keep[k].Slots)), short.Free+int64(n)
	}
	if short.Free < short.Requested {
		short.Detail = m.byDRAOnly(x)
		return nil, nil, short
	}
	return bound, kept, nil
}

// BindFailedKeeping records a bind that definitely failed, of which the capacity is kept.
func (m *Model) BindFailedKeeping(pod ledger.PodRef, node string, deadline time.Time) bool {
	c := m.find(pod)
	if c == nil || c.node != node || c.state != ledger.Binding {
		return false
	}
	m.tell(ledger.AllocationBindFailed, c)
	kept := modelAllocation{
		pod: c.pod, node: c.node, scheduler: c.scheduler, caller: c.caller, priority: c.priority, request: c.request.Kept(),
		uses:    c.uses,
		devices: c.devices, given: claimedOf(c.given), movable: true, deadline: deadline,
	}
	m.forget(c)
	if m.nodes[node] != nil && m.find(c.pod) == nil {
		m.tell(ledger.SlotPlaced, m.add(kept))
	}
	m.waited(c.uses)
	return true
}

// PutOff puts off the deadlines of what is kept in memory for some pods.
func (m *Model) PutOff(pods []ledger.PodRef, deadline time.Time) {
	for _, pod := range pods {
		c := m.find(pod)
		if c != nil && c.inMemory() && !c.deadline.IsZero() && (deadline.IsZero() || deadline.After(c.deadline)) {
			c.deadline = deadline
			m.tell(ledger.SlotPlaced, c)
		}
	}
}

// moved keeps something for a pod on another node in the place of what is kept for it and may move.
func (m *Model) moved(own *modelAllocation, spec ledger.Slot, p *ledger.Placement,
	forLater bool,
) (*grant, *ledger.Rejection) {
	p = own.named(p)
	spec.Pod = p.Pod
	g, rejection := m.without(own).fresh(&spec, p, forLater)
	if rejection != nil {
		rejection.AllocatedOn = own.node
		return nil, rejection
	}
	m.forget(own)
	g.allocation, g.from = m.add(*g.allocation), own
	return g, nil
}

// tryBound finds a place for a pod that is bound: nothing is kept for later, so that limits of what is do not count.
func (m *Model) tryBound(p *ledger.Placement) (*grant, *ledger.Rejection) {
	spec := p.Slot(time.Time{})
	own := m.find(p.Pod)
	switch {
	case own == nil:
		return m.fresh(&spec, p, false)
	case own != nil && own.movable && own.node != p.Node:
		return m.moved(own, spec, p, false)
	case own.node != p.Node:
		return nil, m.refuse(p, ledger.Verdict{Reason: ledger.AllocatedElsewhere}, own)
	}
	if v := m.verdictInPlace(own, p); v.Reason != ledger.Fits {
		return nil, m.refuse(p, v, own)
	}
	g := &grant{allocation: own}
	own.request, own.movable = p.Request, false
	m.setDevices(own, p.Devices)
	if own.pod.UID == "" && p.Pod.UID != "" {
		own.pod.UID, g.named = p.Pod.UID, true
	}
	return g, nil
}

// tryChoice keeps something for as many pods as there is capacity for, each on the first of the nodes that will do.
func (m *Model) tryChoice(c *ledger.Choice) (grants []*grant, placed int, rejection *ledger.Rejection) {
	for _, node := range c.Nodes {
		for placed < len(c.Slots) && m.has(node) {
			spec := c.Slots[placed]
			spec.Node = node
			if _, v := m.choose(asPlacement(&spec), node); v.Reason != ledger.Fits && !v.Reason.OfLimit() {
				break
			}
			g, rejection := m.tryMemory(&spec)
			if rejection != nil {
				return nil, placed, rejection
			}
			grants = append(grants, g)
			placed++
		}
	}
	return grants, placed, nil
}
