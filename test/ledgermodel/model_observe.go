package ledgermodel

import (
	"cmp"
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
	dra := map[v1.ResourceName]bool{}
	for _, c := range o.DRA {
		dra[m.table.Name(c)] = true
	}
	kind := ledger.NodeUpdated
	if old := m.nodes[o.Name]; old != nil && old.exists && old.uid == o.UID &&
		old.cordoned == o.Unschedulable && maps.Equal(old.allocatable, allocatable) &&
		maps.Equal(old.dra, dra) {
		if maps.Equal(old.labels, o.Labels) {
			return false
		}
		kind = ledger.NodeLabeled
	}
	m.nodes[o.Name] = &modelNode{
		exists: true, cordoned: o.Unschedulable, uid: o.UID, labels: o.Labels,
		allocatable: allocatable, dra: dra, said: o,
	}
	m.Events = append(m.Events, ledger.Event{
		Type: kind, Node: o.Name, EventDetails: ledger.EventDetails{
			NodeUID: o.UID, Allocatable: o.Allocatable, DRA: o.DRA, Unschedulable: o.Unschedulable, Labels: o.Labels,
		},
	})
	return true
}

// RemoveNode records that a node is gone; its allocations stay, what is kept in memory does not.
func (m *Model) RemoveNode(name string) bool {
	n := m.nodes[name]
	if n == nil || !n.exists {
		return false
	}
	delete(m.nodes, name)
	m.nominations = slices.DeleteFunc(slices.Clone(m.nominations), func(n modelNomination) bool { return n.Node == name })
	m.Events = append(m.Events, ledger.Event{
		Type: ledger.NodeRemoved, Node: name,
		EventDetails: ledger.EventDetails{NodeUID: n.uid},
	})
	kept := slices.DeleteFunc(slices.Clone(m.allocations), func(c *modelAllocation) bool {
		return !c.inMemory() ||
			c.node != name
	})
	slices.SortFunc(kept, func(a, b *modelAllocation) int { return comparePods(a.pod, b.pod) })
	for _, c := range kept {
		m.drop(c, ledger.SlotReleased)
	}
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
	if c == nil || c.inMemory() {
		m.giveWay(o.Pod, o.Scheduler)
		return m.observeNew(&o, m.find(o.Pod))
	}
	if o.ResourceVersion != 0 && o.ResourceVersion < c.version {
		return ledger.ObservedNothing
	}
	c.version = max(c.version, o.ResourceVersion)
	m.identify(c, o.Pod.UID)
	from, state, left, was := c.node, c.state, c.uses, c.request
	if c.said && from != o.Node {
		c.devices, c.given, c.said = nil, nil, false
	}
	resized := m.observeDevices(c, &o)
	o.Request = m.charged(o.Request, c.given)
	c.see(&o)
	resized = resized || !sameRequest(was, c.request)
	c.node = o.Node
	c.state = ledger.Bound
	switch {
	case from != o.Node:
		c.boundWith, c.boundUID = o.Slot, o.SlotUID
		m.link(c, &o)
		m.tell(ledger.AllocationMoved, c)
		m.Events[len(m.Events)-1].MovedFrom = from
		m.bound(c)
		m.waited(left)
		return ledger.ObservedMoved
	case state != ledger.Bound:
		m.tell(ledger.AllocationBound, c)
		m.bound(c)
		return ledger.ObservedConfirmed
	case resized:
		m.tell(ledger.AllocationResized, c)
		return ledger.ObservedResized
	}
	return ledger.ObservedNothing
}

// observeNew records a pod found bound of which no bind was known to have begun: kept is
// what was kept for it in memory, or nil.
func (m *Model) observeNew(o *ledger.PodObservation, kept *modelAllocation) ledger.Observed {
	outcome, c := ledger.ObservedNew, kept
	within := ledger.SlotRef{}
	if kept != nil && kept.node == o.Node {
		outcome, within = ledger.ObservedConfirmed, kept.uses
		m.begin(c, o.Pod, ledger.Bound)
	} else {
		if kept != nil {
			outcome = ledger.ObservedMoved
			m.drop(kept, ledger.SlotReleased)
		}
		c = m.add(modelAllocation{
			pod: o.Pod, node: o.Node, state: ledger.Bound, scheduler: o.Scheduler, caller: o.Caller,
			priority: o.Priority,
		})
	}
	m.observeDevices(c, o)
	c.request, c.version, c.boundWith, c.boundUID = m.charged(o.Request, c.given), o.ResourceVersion, o.Slot, o.SlotUID
	m.link(c, o)
	if c.uses == (ledger.SlotRef{}) {
		c.uses = within
	}
	for _, h := range m.slots {
		if outcome == ledger.ObservedNew && h.Ref == c.uses && h.isFor(o.Pod) {
			outcome = ledger.ObservedConfirmed
		}
	}
	m.tell(ledger.AllocationBound, c)
	m.bound(c)
	return outcome
}

func comparePods(a, b ledger.PodRef) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// link finds the slot a pod was bound with: the one it names, else one kept for
// it alone. A Once slot that another pod uses is not it.
func (m *Model) link(c *modelAllocation, o *ledger.PodObservation) {
	c.uses = ledger.SlotRef{}
	named, own := m.slot(o.Slot), (*modelSlot)(nil)
	if named != nil && another(named.UID, o.SlotUID) {
		named = nil
	}
	for _, h := range m.slots {
		if own == nil && h.isFor(o.Pod) {
			own = h
		}
	}
	for _, h := range []*modelSlot{own, named} { // the last one that will do
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
func (m *Model) ObserveUnbound(pod ledger.PodRef, scheduler string) int {
	count := m.giveWay(pod, scheduler)
	if c := m.find(pod); c != nil {
		m.identify(c, pod.UID)
	}
	return count
}

// giveWay ends what was kept for a pod that did not exist, and is another scheduler's.
func (m *Model) giveWay(pod ledger.PodRef, scheduler string) (count int) {
	if _, gone := m.gone[pod.UID]; gone && pod.UID != "" {
		return 0
	}
	for _, c := range m.keptInMemory(pod) {
		if c.unborn && c.scheduler != scheduler {
			m.drop(c, ledger.SlotReleased)
			count++
		}
	}
	for _, h := range slices.Clone(m.slots) {
		if h.isFor(pod) && h.Unborn && h.Scheduler != scheduler {
			m.end(h, ledger.SlotReleased, h.Pod)
			count++
		}
	}
	return count
}

// RemovePod records that a pod is gone.
func (m *Model) RemovePod(pod ledger.PodRef, version uint64) bool {
	defer m.endSlotsOfGone(pod)
	if pod.UID == "" {
		return false
	}
	at := slices.IndexFunc(m.allocations, func(c *modelAllocation) bool { return c.pod.UID == pod.UID && !c.inMemory() })
	if at < 0 {
		m.gone[pod.UID] = max(m.gone[pod.UID], version)
		m.endNomination(pod)
		return false
	}
	c := m.allocations[at]
	m.gone[pod.UID] = max(m.gone[pod.UID], version, c.version)
	m.drop(c, ledger.AllocationRemoved)
	m.endNomination(pod)
	return true
}
