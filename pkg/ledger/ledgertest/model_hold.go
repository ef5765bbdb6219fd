package ledgertest

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// hold returns the hold of a name, or nil.
func (m *Model) hold(ref ledger.HoldRef) *modelHold {
	for _, h := range m.holds {
		if h.Ref == ref {
			return h
		}
	}
	return nil
}

// reservation returns the holds of a reservation, ordered by slot.
func (m *Model) reservation(namespace, name string) []*modelHold {
	var holds []*modelHold
	for _, h := range m.holds {
		if h.Ref.Namespace == namespace && h.Ref.Name == name {
			holds = append(holds, h)
		}
	}
	slices.SortFunc(holds, func(a, b *modelHold) int { return cmp.Compare(a.Ref.Slot, b.Ref.Slot) })
	return holds
}

// isFor reports whether a hold is kept for this pod alone.
func (h *modelHold) isFor(pod ledger.PodRef) bool {
	same := h.Pod.Name != "" && h.Pod.Name == pod.Name && h.Pod.Namespace == pod.Namespace && h.Ref.Namespace == pod.Namespace
	return same && (h.Pod.UID == pod.UID || h.Pod.UID == "" || pod.UID == "")
}

// holdFor returns a hold kept for one pod alone that has not run out.
func (m *Model) holdFor(pod ledger.PodRef) *modelHold {
	for _, h := range m.holds {
		if h.isFor(pod) && !h.overdue {
			return h
		}
	}
	return nil
}

// users returns the claims that use a hold.
func (m *Model) users(ref ledger.HoldRef) []*modelClaim {
	var users []*modelClaim
	for _, c := range m.claims {
		if c.uses == ref {
			users = append(users, c)
		}
	}
	return users
}

// beingBound reports whether a bind is in flight that uses a hold.
func (m *Model) beingBound(ref ledger.HoldRef) bool {
	return slices.ContainsFunc(m.users(ref), func(c *modelClaim) bool { return c.state == ledger.Binding })
}

// candidates returns the holds a pod may use: its own first.
func (m *Model) candidates(p *ledger.Placement) []*modelHold {
	var found []*modelHold
	for _, h := range m.holds {
		if h.isFor(p.Pod) {
			found = append(found, h)
		}
	}
	for _, ref := range p.Holds {
		if h := m.hold(ref); h != nil && h.Pod.Name == "" && ref.Namespace == p.Pod.Namespace {
			found = append(found, h)
		}
	}
	return found
}

// choose decides whether a pod without a claim fits a node and which hold it
// uses there: the first that will do, or none.
func (m *Model) choose(p *ledger.Placement, node string) (*modelHold, ledger.Verdict) {
	for _, h := range m.candidates(p) {
		if h.Node == node && m.canUse(h, p) {
			return h, ledger.Verdict{}
		}
	}
	return nil, m.fits(node, p, nil)
}

func (m *Model) canUse(h *modelHold, p *ledger.Placement) bool {
	taken := h.Policy == ledger.Once && len(m.users(h.Ref)) > 0
	return !h.overdue && !taken && m.fits(h.Node, p, h).Reason == ledger.Fits
}

// usable returns the holds a pod could be bound with, on any node.
func (m *Model) usable(p *ledger.Placement) []*modelHold {
	if _, gone := m.gone[p.Pod.UID]; m.find(p.Pod) != nil || (gone && p.Pod.UID != "") {
		return nil
	}
	return slices.DeleteFunc(m.candidates(p), func(h *modelHold) bool { return !m.canUse(h, p) })
}

// tellHold records what the ledger has to announce about a hold.
func (m *Model) tellHold(t ledger.EventType, h *modelHold, pod ledger.PodRef) {
	m.Events = append(m.Events, ledger.Event{
		Type: t, Node: h.Node, Pod: pod, Scheduler: h.Scheduler, Priority: h.Priority, Request: h.Request,
		Deadline: h.Deadline, Hold: h.Ref, Policy: h.Policy, Preemptible: h.Preemptible, Overdue: h.overdue,
		Given: h.given, Devices: h.Devices,
	})
}

// end ends a hold; its pods keep their claims.
func (m *Model) end(h *modelHold, why ledger.EventType, pod ledger.PodRef) {
	m.holds = slices.DeleteFunc(m.holds, func(o *modelHold) bool { return o == h })
	for _, c := range m.users(h.Ref) {
		c.uses = ledger.HoldRef{}
	}
	m.tellHold(why, h, pod)
}

// waited ends a hold that had only waited for a bind.
func (m *Model) waited(ref ledger.HoldRef) {
	if h := m.hold(ref); h != nil && h.overdue && !m.beingBound(ref) {
		m.end(h, ledger.HoldExpired, h.Pod)
	}
}

// bound does what follows once a pod is bound: its Once hold is used up, a hold
// that waited for the bind ends, and other room kept for it alone is given back.
func (m *Model) bound(c *modelClaim) {
	used := m.hold(c.uses)
	if used != nil {
		c.boundWith, c.boundUID = used.Ref, used.UID
		if used.Policy == ledger.Once {
			m.end(used, ledger.HoldConsumed, c.pod)
		} else {
			m.waited(used.Ref)
		}
	}
	for _, kept := range m.keptInMemory(c.pod) {
		m.drop(kept, ledger.HoldReleased)
	}
	for _, h := range slices.Clone(m.holds) {
		if h.isFor(c.pod) && h != used {
			m.end(h, ledger.HoldReleased, h.Pod)
		}
	}
}

// make makes a slot of a reservation, with the devices meant for it.
func (m *Model) make(spec *ledger.Hold) *modelHold {
	h := &modelHold{Hold: *spec}
	h.Holds = nil
	if spec.Devices != nil {
		h.given, _ = m.give(spec.Node, spec.Devices, nil)
	}
	if share := m.freeShare(spec.Node); share != nil {
		h.given = share
	}
	m.holds = append(m.holds, h)
	return h
}

// allow decides one hold: it may be there already, or be granted, or refused.
func (m *Model) allow(spec *ledger.Hold) (existing *modelHold, rejection *ledger.Rejection) {
	p := &ledger.Placement{Pod: spec.Pod, Node: spec.Node, Request: spec.Request, Devices: spec.Devices}
	refuse := func(reason ledger.Reason, on string) *ledger.Rejection {
		r := m.refuse(p, ledger.Verdict{Reason: reason}, nil)
		r.ClaimedOn = on
		return r
	}
	same := func(h *modelHold) bool {
		return h.Node == spec.Node && sameRequest(h.Request, spec.Request) && sameDevices(h.Devices, spec.Devices, sameName)
	}
	if h := m.hold(spec.Ref); h != nil {
		samePod := (spec.Pod.Name == "" && h.Pod.Name == "") || h.isFor(spec.Pod)
		if same(h) && samePod && !h.overdue {
			return h, nil
		}
		return nil, refuse(ledger.HoldExists, h.Node)
	}
	if spec.Pod.Name != "" {
		if _, gone := m.gone[spec.Pod.UID]; gone && spec.Pod.UID != "" {
			return nil, refuse(ledger.PodGone, "")
		}
		c := m.find(spec.Pod)
		if c != nil && !c.inMemory() {
			return nil, refuse(ledger.PodClaimed, c.node)
		}
		switch h := m.holdFor(spec.Pod); {
		case h == nil && c != nil:
			r := refuse(ledger.HoldExists, c.node)
			r.Holders = []ledger.Holder{holderOf(c, 1)}
			return nil, r
		case h == nil:
		case same(h):
			return h, nil
		case h.Node == spec.Node:
			r := refuse(ledger.HoldExists, h.Node)
			r.Holders = []ledger.Holder{keeperOf(h, 1)}
			return nil, r
		default:
			return nil, refuse(ledger.ClaimedElsewhere, h.Node)
		}
	}
	if v := m.fits(spec.Node, p, nil); v.Reason != ledger.Fits {
		return nil, m.refuse(p, v, nil)
	}
	return nil, nil
}

// ObserveHold records a hold that was granted before, and links it with the
// pods that were bound with it.
func (m *Model) ObserveHold(spec ledger.Hold) bool {
	if h := m.hold(spec.Ref); h != nil {
		m.setDeadline(h, spec.Deadline)
		return false
	}
	h := &modelHold{Hold: spec, given: m.observedGiven(&spec)}
	m.holds = append(m.holds, h)
	m.tellHold(ledger.HoldPlaced, h, h.Pod)
	var claims []*modelClaim
	own := (*modelClaim)(nil)
	if h.Pod.Name != "" {
		if own = m.find(h.Pod); own != nil && own.inMemory() {
			own = nil
		}
	}
	for _, c := range m.claims {
		allowed := h.Ref.Namespace == c.pod.Namespace && (h.Pod.Name == "" || h.isFor(c.pod))
		named := c.boundWith == h.Ref && !another(h.UID, c.boundUID)
		if !c.inMemory() && c.node == h.Node && c.uses == (ledger.HoldRef{}) && allowed && (named || c == own) {
			claims = append(claims, c)
		}
	}
	slices.SortFunc(claims, func(a, b *modelClaim) int {
		return cmp.Or(cmp.Compare(a.pod.Name, b.pod.Name), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	for _, c := range claims {
		if h.Policy == ledger.Once && (m.hold(h.Ref) == nil || len(m.users(h.Ref)) > 0) {
			break
		}
		c.uses = h.Ref
		m.tell(ledger.ClaimLinked, c)
		if c.state == ledger.Bound {
			m.bound(c)
		}
	}
	_, gone := m.gone[h.Pod.UID]
	if m.hold(h.Ref) != nil && h.Pod.Name != "" {
		elsewhere := own != nil && own.state == ledger.Bound && own.uses != h.Ref
		if elsewhere || (gone && h.Pod.UID != "") {
			m.end(h, ledger.HoldReleased, h.Pod)
		}
	}
	return true
}

// another reports whether two reservations are known not to be the same.
func another(a, b types.UID) bool { return a != "" && b != "" && a != b }

func (m *Model) setDeadline(h *modelHold, at time.Time) {
	if h.Deadline.Equal(at) {
		return
	}
	h.Deadline, h.overdue = at, false
	m.tellHold(ledger.HoldPlaced, h, h.Pod)
}

// SetHoldDeadline changes when the holds of a reservation end.
func (m *Model) SetHoldDeadline(namespace, name string, at time.Time) int {
	holds := m.reservation(namespace, name)
	for _, h := range holds {
		m.setDeadline(h, at)
	}
	return len(holds)
}

// ReleaseHolds gives back the holds of a reservation, or those of some slots.
func (m *Model) ReleaseHolds(namespace, name string, slots ...string) int {
	count := 0
	for _, h := range m.reservation(namespace, name) {
		if len(slots) == 0 || slices.Contains(slots, h.Ref.Slot) {
			m.end(h, ledger.HoldReleased, h.Pod)
			count++
		}
	}
	return count
}

// RemovePodHolding ends a pod and keeps its room, unless the room is a hold's
// already.
func (m *Model) RemovePodHolding(pod ledger.PodRef, version uint64, spec ledger.Hold) bool {
	at := slices.IndexFunc(m.claims, func(c *modelClaim) bool { return pod.UID != "" && c.pod.UID == pod.UID && !c.inMemory() })
	if at < 0 {
		return m.RemovePod(pod, version)
	}
	c := m.claims[at]
	keep := c.state == ledger.Bound && m.nodes[c.node] != nil && c.uses == (ledger.HoldRef{}) && m.hold(spec.Ref) == nil
	m.gone[pod.UID] = max(m.gone[pod.UID], version, c.version)
	m.drop(c, ledger.ClaimRemoved)
	if keep {
		h := &modelHold{Hold: spec}
		h.Node, h.Request, h.Devices = c.node, c.request, nil
		if c.devices != nil && c.devices.Err == "" && len(c.given) == len(c.devices.Requests) {
			h.Devices = &ledger.DeviceRequest{Requests: c.devices.Requests}
			for _, g := range c.given {
				h.given = append(h.given, ledger.GivenDevices{Resource: g.Resource, IDs: g.IDs})
			}
		}
		m.holds = append(m.holds, h)
		m.tellHold(ledger.HoldPlaced, h, h.Pod)
	}
	m.endHoldsOfGone(pod)
	return keep
}

// endHoldsOfGone gives back what was kept for a pod that is gone.
func (m *Model) endHoldsOfGone(pod ledger.PodRef) {
	for _, c := range m.keptInMemory(pod) {
		if pod.UID != "" && c.pod.UID == pod.UID {
			m.drop(c, ledger.HoldReleased)
		}
	}
	for _, h := range slices.Clone(m.holds) {
		sameName := h.Pod.Namespace == pod.Namespace && h.Pod.Name == pod.Name
		if pod.UID != "" && h.Pod.UID == pod.UID && sameName {
			m.end(h, ledger.HoldReleased, h.Pod)
		}
	}
}

// preemption returns the reservations that have to end so that a pod fits a
// node: those of lower priority that allow it, and of which no slot is being
// bound. Of these as many are kept as can be, those of higher priority first.
func (m *Model) preemption(p *ledger.Placement, node string) (victims []podName, ok bool) {
	priority := map[podName]int32{}
	for _, h := range m.holds {
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
		return cmp.Or(cmp.Compare(priority[a], priority[b]), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	fits := func(gone []podName) bool {
		_, v := m.only(anyClaim, func(h *modelHold) bool {
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
