package ledgermodel

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// slot returns the slot of a name, or nil.
func (m *Model) slot(ref ledger.SlotRef) *modelSlot {
	for _, h := range m.slots {
		if h.Ref == ref {
			return h
		}
	}
	return nil
}

// reservation returns the slots of a reservation, ordered by slot.
func (m *Model) reservation(namespace, name string) []*modelSlot {
	var slots []*modelSlot
	for _, h := range m.slots {
		if h.Ref.Namespace == namespace && h.Ref.Name == name {
			slots = append(slots, h)
		}
	}
	slices.SortFunc(slots, func(a, b *modelSlot) int { return cmp.Compare(a.Ref.Slot, b.Ref.Slot) })
	return slots
}

// isFor reports whether a slot is kept for this pod alone.
func (h *modelSlot) isFor(pod ledger.PodRef) bool {
	same := h.Pod.Name != "" && h.Pod.Name == pod.Name && h.Pod.Namespace == pod.Namespace &&
		h.Ref.Namespace == pod.Namespace
	return same && (h.Pod.UID == pod.UID || h.Pod.UID == "" || pod.UID == "")
}

// slotFor returns a slot kept for one pod alone that has not run out.
func (m *Model) slotFor(pod ledger.PodRef) *modelSlot {
	for _, h := range m.slots {
		if h.isFor(pod) && !h.overdue {
			return h
		}
	}
	return nil
}

// users returns the allocations that use a slot.
func (m *Model) users(ref ledger.SlotRef) []*modelAllocation {
	var users []*modelAllocation
	for _, c := range m.allocations {
		if c.uses == ref {
			users = append(users, c)
		}
	}
	return users
}

// beingBound reports whether a bind is in flight that uses a slot.
func (m *Model) beingBound(ref ledger.SlotRef) bool {
	return slices.ContainsFunc(m.users(ref), func(c *modelAllocation) bool { return c.state == ledger.Binding })
}

// candidates returns the slots a pod may use: its own first.
func (m *Model) candidates(p *ledger.Placement) []*modelSlot {
	var found []*modelSlot
	for _, h := range m.slots {
		if h.isFor(p.Pod) {
			found = append(found, h)
		}
	}
	for _, ref := range p.Slots {
		if h := m.slot(ref); h != nil && h.Pod.Name == "" && ref.Namespace == p.Pod.Namespace {
			found = append(found, h)
		}
	}
	return found
}

// choose decides whether a pod without an allocation fits a node and which slot it
// uses there: the first that will do, or none.
func (m *Model) choose(p *ledger.Placement, node string) (*modelSlot, ledger.Verdict) {
	for _, h := range m.candidates(p) {
		if h.Node == node && m.canUse(h, p) {
			return h, ledger.Verdict{}
		}
	}
	return nil, m.fits(node, p, nil)
}

func (m *Model) canUse(h *modelSlot, p *ledger.Placement) bool {
	taken := h.Policy == ledger.Once && len(m.users(h.Ref)) > 0
	return !h.overdue && !taken && m.fits(h.Node, p, h).Reason == ledger.Fits
}

// usable returns the slots a pod could be bound with, on any node.
func (m *Model) usable(p *ledger.Placement) []*modelSlot {
	if _, gone := m.gone[p.Pod.UID]; m.find(p.Pod) != nil || (gone && p.Pod.UID != "") {
		return nil
	}
	return slices.DeleteFunc(m.candidates(p), func(h *modelSlot) bool { return !m.canUse(h, p) })
}

// tellSlot records what the ledger has to announce about a slot.
func (m *Model) tellSlot(t ledger.EventType, h *modelSlot, pod ledger.PodRef) {
	m.Events = append(m.Events, ledger.Event{
		Type: t, Node: h.Node, Pod: pod, Scheduler: h.Scheduler, Priority: h.Priority, Request: h.Request,
		Deadline: h.Deadline, EventDetails: ledger.EventDetails{
			Slot: h.Ref, Policy: h.Policy, Preemptible: h.Preemptible, Overdue: h.overdue, Given: h.given, Devices: h.Devices,
		},
	})
}

// end ends a slot; its pods keep their allocations.
func (m *Model) end(h *modelSlot, why ledger.EventType, pod ledger.PodRef) {
	m.slots = slices.DeleteFunc(m.slots, func(o *modelSlot) bool { return o == h })
	for _, c := range m.users(h.Ref) {
		c.uses = ledger.SlotRef{}
	}
	m.tellSlot(why, h, pod)
}

// waited ends a slot that had only waited for a bind.
func (m *Model) waited(ref ledger.SlotRef) {
	if h := m.slot(ref); h != nil && h.overdue && !m.beingBound(ref) {
		m.end(h, ledger.SlotExpired, h.Pod)
	}
}

// bound does what follows once a pod is bound: its Once slot is used up, a slot
// that waited for the bind ends, and other capacity kept for it alone is given back.
func (m *Model) bound(c *modelAllocation) {
	m.endNomination(c.pod)
	used := m.slot(c.uses)
	if used != nil {
		c.boundWith, c.boundUID = used.Ref, used.UID
		if used.Policy == ledger.Once {
			m.end(used, ledger.SlotConsumed, c.pod)
		} else {
			m.waited(used.Ref)
		}
	}
	for _, kept := range m.keptInMemory(c.pod) {
		m.drop(kept, ledger.SlotReleased)
	}
	for _, h := range slices.Clone(m.slots) {
		if h.isFor(c.pod) && h != used {
			m.end(h, ledger.SlotReleased, h.Pod)
		}
	}
}

// make makes a slot of a reservation, with the devices meant for it.
func (m *Model) make(spec *ledger.Slot) *modelSlot {
	h := &modelSlot{Slot: *spec}
	h.Slots = nil
	if spec.Devices != nil {
		h.given, _ = m.give(spec.Node, spec.Devices, nil)
	}
	if share := m.freeShare(spec.Node); share != nil {
		h.given = share
	}
	m.slots = append(m.slots, h)
	return h
}

// allow decides one slot: it may be there already, or be granted, or refused.
func (m *Model) allow(spec *ledger.Slot) (existing *modelSlot, rejection *ledger.Rejection) {
	p := asPlacement(spec)
	p.Slots = nil
	refuse := func(reason ledger.Reason, on string) *ledger.Rejection {
		r := m.refuse(p, ledger.Verdict{Reason: reason}, nil)
		r.AllocatedOn = on
		return r
	}
	same := func(h *modelSlot) bool {
		return h.Node == spec.Node && sameRequest(h.Request, spec.Request) && sameDevices(h.Devices, spec.Devices, sameName)
	}
	if h := m.slot(spec.Ref); h != nil {
		samePod := (spec.Pod.Name == "" && h.Pod.Name == "") || h.isFor(spec.Pod)
		if same(h) && samePod && !h.overdue {
			return h, nil
		}
		return nil, refuse(ledger.SlotExists, h.Node)
	}
	if spec.Pod.Name != "" {
		if _, gone := m.gone[spec.Pod.UID]; gone && spec.Pod.UID != "" {
			return nil, refuse(ledger.PodGone, "")
		}
		c := m.find(spec.Pod)
		if c != nil && !c.inMemory() {
			return nil, refuse(ledger.PodAllocated, c.node)
		}
		switch h := m.slotFor(spec.Pod); {
		case h == nil && c != nil:
			r := refuse(ledger.SlotExists, c.node)
			r.Holders = []ledger.Holder{holderOf(c, 1)}
			return nil, r
		case h == nil:
		case same(h):
			return h, nil
		case h.Node == spec.Node:
			r := refuse(ledger.SlotExists, h.Node)
			r.Holders = []ledger.Holder{keeperOf(h, 1)}
			return nil, r
		default:
			return nil, refuse(ledger.AllocatedElsewhere, h.Node)
		}
	}
	v := m.fitsFor(slotOwners(spec), spec.Node, p, nil)
	if v.Reason == ledger.Fits {
		v = m.overKeep(slotOwners(spec), spec.Request, nil, nil)
	}
	if v.Reason != ledger.Fits {
		return nil, m.refuseSlot(spec, v)
	}
	return nil, nil
}

// ObserveSlot records a slot that was granted before, and links it with the
// pods that were bound with it.
func (m *Model) ObserveSlot(spec ledger.Slot) bool {
	if h := m.slot(spec.Ref); h != nil {
		m.setDeadline(h, spec.Deadline)
		return false
	}
	h := &modelSlot{Slot: spec, given: m.observedGiven(&spec)}
	m.slots = append(m.slots, h)
	m.tellSlot(ledger.SlotPlaced, h, h.Pod)
	var allocations []*modelAllocation
	own := (*modelAllocation)(nil)
	if h.Pod.Name != "" {
		if own = m.find(h.Pod); own != nil && own.inMemory() {
			own = nil
		}
	}
	for _, c := range m.allocations {
		allowed := h.Ref.Namespace == c.pod.Namespace && (h.Pod.Name == "" || h.isFor(c.pod))
		named := c.boundWith == h.Ref && !another(h.UID, c.boundUID)
		if !c.inMemory() && c.node == h.Node && c.uses == (ledger.SlotRef{}) && allowed && (named || c == own) {
			allocations = append(allocations, c)
		}
	}
	slices.SortFunc(allocations, func(a, b *modelAllocation) int {
		return cmp.Or(cmp.Compare(a.pod.Name, b.pod.Name), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	for _, c := range allocations {
		if h.Policy == ledger.Once && (m.slot(h.Ref) == nil || len(m.users(h.Ref)) > 0) {
			break
		}
		c.uses = h.Ref
		m.tell(ledger.AllocationLinked, c)
		if c.state == ledger.Bound {
			m.bound(c)
		}
	}
	_, gone := m.gone[h.Pod.UID]
	if m.slot(h.Ref) != nil && h.Pod.Name != "" {
		elsewhere := own != nil && own.state == ledger.Bound && own.uses != h.Ref
		if elsewhere || (gone && h.Pod.UID != "") {
			m.end(h, ledger.SlotReleased, h.Pod)
		}
	}
	return true
}

// another reports whether two reservations are known not to be the same.
func another(a, b types.UID) bool { return a != "" && b != "" && a != b }

func (m *Model) setDeadline(h *modelSlot, at time.Time) {
	if h.Deadline.Equal(at) {
		return
	}
	h.Deadline, h.overdue = at, false
	m.tellSlot(ledger.SlotPlaced, h, h.Pod)
}

// SetSlotDeadline changes when the slots of a reservation end.
func (m *Model) SetSlotDeadline(namespace, name string, at time.Time) int {
	slots := m.reservation(namespace, name)
	for _, h := range slots {
		m.setDeadline(h, at)
	}
	return len(slots)
}

// ReleaseSlots gives back the slots of a reservation, or those of some slots.
func (m *Model) ReleaseSlots(namespace, name string, slots ...string) int {
	count := 0
	for _, h := range m.reservation(namespace, name) {
		if len(slots) == 0 || slices.Contains(slots, h.Ref.Slot) {
			m.end(h, ledger.SlotReleased, h.Pod)
			count++
		}
	}
	return count
}

// RemovePodHolding ends a pod and keeps its capacity, unless the capacity is a slot's
// already.
func (m *Model) RemovePodHolding(pod ledger.PodRef, version uint64,
	spec ledger.Slot,
) (made bool, refused *ledger.Rejection) {
	at := slices.IndexFunc(m.allocations, func(c *modelAllocation) bool {
		return pod.UID != "" && c.pod.UID == pod.UID &&
			!c.inMemory()
	})
	if at < 0 {
		return m.RemovePod(pod, version), nil
	}
	c := m.allocations[at]
	kept := m.besidesDRA(c).Capacity()
	keep := c.state == ledger.Bound && m.nodes[c.node] != nil && c.uses == (ledger.SlotRef{}) && m.slot(spec.Ref) == nil
	m.gone[pod.UID] = max(m.gone[pod.UID], version, c.version)
	m.drop(c, ledger.AllocationRemoved)
	m.endNomination(pod)
	if keep {
		h := &modelSlot{Slot: spec}
		h.Node, h.Request, h.Devices, h.Caller = c.node, kept, nil, c.caller
		who := slotOwners(&h.Slot)
		v := m.over(who, h.Request, nil, nil)
		if v.Reason == ledger.Fits {
			v = m.overKeep(who, h.Request, nil, nil)
		}
		if v.Reason != ledger.Fits {
			refused, keep = m.refuseSlot(&h.Slot, v), false
			refused.Slot = spec.Ref
		}
		claimed, unclear := claimedOf(c.given), slices.ContainsFunc(c.given,
			func(g ledger.GivenDevices) bool { return g.Resource == "" })
		if c.devices != nil && c.devices.Err == "" && len(claimed) > 0 && !unclear && areOf(claimed, c.devices.Requests) {
			h.Devices = &ledger.DeviceRequest{Requests: c.devices.Requests}
			for _, g := range claimed {
				h.given = append(h.given, ledger.GivenDevices{Resource: g.Resource, IDs: g.IDs})
			}
		}
		if keep {
			m.slots = append(m.slots, h)
			m.tellSlot(ledger.SlotPlaced, h, h.Pod)
		}
	}
	m.endSlotsOfGone(pod)
	return keep, refused
}

// areOf says whether devices are of the resources that claims ask for.
func areOf(claimed []ledger.GivenDevices, requests []*devices.Request) bool {
	return slices.EqualFunc(claimed, requests, func(g ledger.GivenDevices, r *devices.Request) bool {
		return g.Resource == r.Resource()
	})
}

// endSlotsOfGone gives back what was kept for a pod that is gone.
func (m *Model) endSlotsOfGone(pod ledger.PodRef) {
	for _, c := range m.keptInMemory(pod) {
		if pod.UID != "" && c.pod.UID == pod.UID {
			m.drop(c, ledger.SlotReleased)
		}
	}
	for _, h := range slices.Clone(m.slots) {
		sameName := h.Pod.Namespace == pod.Namespace && h.Pod.Name == pod.Name
		if pod.UID != "" && h.Pod.UID == pod.UID && sameName {
			m.end(h, ledger.SlotReleased, h.Pod)
		}
	}
}

// preemption returns the reservations that have to end so that a pod fits a
// node: those of lower priority that allow it, and of which no slot is being
// bound. Of these as many are kept as can be, those of higher priority first.
func (m *Model) preemption(p *ledger.Placement, node string) (victims []podName, ok bool) {
	priority := map[podName]int32{}
	for _, h := range m.slots {
		name := podName{h.Ref.Namespace, h.Ref.Name}
		mayEnd := true
		priority[name] = h.Priority
		for _, o := range m.reservation(name.namespace, name.name) {
			mayEnd = mayEnd && o.Preemptible && o.Priority < p.Priority && !m.beingBound(o.Ref)
			priority[name] = max(priority[name], o.Priority)
		}
		if h.Node == node && mayEnd && !slices.Contains(victims, name) {
			victims = append(victims, name)
		}
	}
	slices.SortFunc(victims, func(a, b podName) int {
		return cmp.Or(cmp.Compare(priority[a], priority[b]), cmp.Compare(a.namespace, b.namespace),
			cmp.Compare(a.name, b.name))
	})
	fits := func(gone []podName) bool {
		_, v := m.only(anyAllocation, func(h *modelSlot) bool {
			return !slices.Contains(gone, podName{h.Ref.Namespace, h.Ref.Name})
		}).choose(p, node)
		return v.Reason == ledger.Fits
	}
	if !fits(victims) {
		return nil, false
	}
	for k := len(victims) - 1; k >= 0; k-- {
		if fewer := slices.Delete(slices.Clone(victims), k, k+1); fits(fewer) {
			victims = fewer
		}
	}
	return victims, true
}
