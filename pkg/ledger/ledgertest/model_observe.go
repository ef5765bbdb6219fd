package ledgertest

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// ObserveNode records what a node offers.
func (m *Model) ObserveNode(o ledger.NodeObservation) bool {
	allocatable := map[v1.ResourceName]int64{}
	for _, a := range o.Allocatable {
		allocatable[m.table.Name(a.Column)] = a.Value
	}
	if old := m.nodes[o.Name]; old != nil && old.exists && old.uid == o.UID &&
		old.cordoned == o.Unschedulable && maps.Equal(old.allocatable, allocatable) {
		return false
	}
	m.nodes[o.Name] = &modelNode{exists: true, cordoned: o.Unschedulable, uid: o.UID, allocatable: allocatable}
	m.Events = append(m.Events, ledger.Event{
		Type: ledger.NodeUpdated, Node: o.Name, NodeUID: o.UID,
		Allocatable: o.Allocatable, Unschedulable: o.Unschedulable,
	})
	return true
}

// RemoveNode records that a node is gone; its claims stay.
func (m *Model) RemoveNode(name string) bool {
	n := m.nodes[name]
	if n == nil || !n.exists {
		return false
	}
	delete(m.nodes, name)
	m.Events = append(m.Events, ledger.Event{Type: ledger.NodeRemoved, Node: name, NodeUID: n.uid})
	return true
}

// ObservePod records a pod found bound.
func (m *Model) ObservePod(o ledger.PodObservation) ledger.Observed {
	if at, gone := m.gone[o.Pod.UID]; gone {
		if o.ResourceVersion != 0 && o.ResourceVersion <= at {
			return ledger.ObservedNothing
		}
		delete(m.gone, o.Pod.UID)
	}
	c := m.find(o.Pod)
	if c == nil {
		c = m.add(modelClaim{
			pod: o.Pod, node: o.Node, state: ledger.Bound, scheduler: o.Scheduler,
			priority: o.Priority, request: o.Request, version: o.ResourceVersion,
			boundWith: o.Hold, boundUID: o.HoldUID,
		}, false)
		c.observeDevices(o.Devices)
		m.link(c, &o)
		granted := false
		for _, h := range m.holds {
			granted = granted || (h.Ref == c.uses && h.isFor(o.Pod))
		}
		m.tell(ledger.ClaimBound, c)
		m.bound(c)
		if granted {
			return ledger.ObservedConfirmed
		}
		return ledger.ObservedNew
	}
	if o.ResourceVersion != 0 && o.ResourceVersion < c.version {
		return ledger.ObservedNothing
	}
	c.version = max(c.version, o.ResourceVersion)
	m.identify(c, o.Pod.UID)
	from, state, left, resized := c.node, c.state, c.uses, !sameRequest(c.request, o.Request)
	c.node, c.request = o.Node, o.Request
	if c.said && from != o.Node {
		c.devices, c.given, c.said = nil, nil, false
	}
	resized = c.observeDevices(o.Devices) || resized
	c.setState(ledger.Bound)
	switch {
	case from != o.Node:
		c.boundWith, c.boundUID = o.Hold, o.HoldUID
		m.link(c, &o)
		m.tell(ledger.ClaimMoved, c)
		m.Events[len(m.Events)-1].MovedFrom = from
		m.bound(c)
		m.waited(left)
		return ledger.ObservedMoved
	case state != ledger.Bound:
		m.tell(ledger.ClaimBound, c)
		m.bound(c)
		return ledger.ObservedConfirmed
	case resized:
		m.tell(ledger.ClaimResized, c)
		return ledger.ObservedResized
	}
	return ledger.ObservedNothing
}

// link finds the hold a pod was bound with: the one it names, else one kept for
// it alone. A Once hold that another pod uses is not it.
func (m *Model) link(c *modelClaim, o *ledger.PodObservation) {
	c.uses = ledger.HoldRef{}
	named, own := m.hold(o.Hold), (*modelHold)(nil)
	if named != nil && another(named.UID, o.HoldUID) {
		named = nil
	}
	for _, h := range m.holds {
		if own == nil && h.isFor(o.Pod) {
			own = h
		}
	}
	for _, h := range []*modelHold{own, named} { // the last one that will do
		switch {
		case h == nil || h.Node != o.Node || h.Ref.Namespace != o.Pod.Namespace:
		case h.Pod.Name != "" && !h.isFor(o.Pod):
		case h.Policy == ledger.Once && len(m.users(h.Ref)) > 0:
		default:
			c.uses = h.Ref
		}
	}
}

// ObserveUnbound records that a pod exists.
func (m *Model) ObserveUnbound(pod ledger.PodRef) {
	if c := m.find(pod); c != nil {
		m.identify(c, pod.UID)
	}
}

// RemovePod records that a pod is gone.
func (m *Model) RemovePod(pod ledger.PodRef, version uint64) bool {
	defer m.endHoldsOfGone(pod)
	if pod.UID == "" {
		return false
	}
	at := slices.IndexFunc(m.claims, func(c *modelClaim) bool { return c.pod.UID == pod.UID })
	if at < 0 {
		m.gone[pod.UID] = max(m.gone[pod.UID], version)
		return false
	}
	c := m.claims[at]
	m.gone[pod.UID] = max(m.gone[pod.UID], version, c.version)
	m.drop(c, ledger.ClaimRemoved)
	return true
}
