package ledger

import (
	"slices"
	"time"
)

// ObserveSlot records a slot that was granted before: its object says so. It is never refused. It reports whether there
// was no such slot yet; one that was there gets the deadline observed. Pods that were seen bound with the slot before
// it was observed are linked with it; it may end at once because of that.
func (l Observer) ObserveSlot(spec Slot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.slots[spec.Ref]; h != nil {
		l.setSlotDeadline(h, spec.Deadline)
		return false
	}
	l.linkEarlier(l.keep(&spec, l.ensureNode(spec.Node), l.observedGiven(&spec)))
	return true
}

// keep records a slot of a reservation whether it fits or not.
func (l *account) keep(spec *Slot, i int32, a *deviceGrant) *entry {
	h := l.addSlot(spec, i, nil, a)
	l.schedule(h)
	l.record(SlotPlaced, h, h.pod)
	return h
}

// linkEarlier links a slot with the pods that were observed before it was. Capacity
// kept for one pod that turns out to be gone, or elsewhere, is given back.
func (l *account) linkEarlier(h *entry) {
	var own *entry
	if h.pod.Name != "" {
		own = l.allocationOf(h.pod)
	}
	var users []*entry
	for c := l.nodes[h.node].first; c != nil; c = c.next {
		named := c.boundBy != nil && c.boundBy.ref == h.slot.ref && h.isOf(c.boundBy.uid)
		if c.isAllocation() && c.within == nil && (named || c == own) && h.mayBeUsedBy(c.pod) {
			users = append(users, c)
		}
	}
	slices.SortFunc(users, func(a, b *entry) int { return comparePods(a.pod, b.pod) })
	ended := func() bool { return l.slots[h.slot.ref] != h }
	for _, c := range users {
		if ended() || !h.mayBeUsedBy(c.pod) {
			return
		}
		l.join(c, h)
		l.record(AllocationLinked, c, c.pod)
		if c.state == Bound {
			l.endSlotsOfBound(c)
		}
	}
	elsewhere := own != nil && own.state == Bound && own.within != h
	if !ended() && h.pod.Name != "" && (elsewhere || l.gone.has(h.pod.UID)) {
		l.endSlot(h, SlotReleased, PodRef{})
	}
}

// setSlotDeadline changes when a slot expires.
func (l *account) setSlotDeadline(h *entry, at time.Time) {
	deadline := deadlineOf(at)
	if h.deadline == deadline {
		return
	}
	h.deadline, h.overdue = deadline, false
	l.schedule(h)
	l.record(SlotPlaced, h, h.pod)
}

// SetSlotDeadline changes when the slots of a reservation expire; zero means never. It returns how many there are.
func (l Observer) SetSlotDeadline(namespace, name string, at time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	slots := l.reservation(nameKey{namespace, name})
	for _, h := range slots {
		l.setSlotDeadline(h, at)
	}
	return len(slots)
}

// ReleaseSlots ends the slots of a reservation, or only those of the slots
// named, and returns how many it ended. Pods that use them keep their allocations.
func (l Observer) ReleaseSlots(namespace, name string, slots ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := 0
	for _, h := range l.reservation(nameKey{namespace, name}) {
		if len(slots) == 0 || slices.Contains(slots, h.slot.ref.Slot) {
			l.endSlot(h, SlotReleased, PodRef{})
			count++
		}
	}
	return count
}

// RemovePodHolding records that a bound pod is gone and keeps its capacity by a slot, in one step: nobody else can take
// the capacity in between. The slot keeps what the pod used, except what DRA gives, on its node: spec.Node,
// spec.Request and spec.Devices are not looked at. It reports whether the slot was made. It is not made where the pod
// was not Bound, the node does not exist, another slot has that name, or the pod used a slot that is still there: that
// one keeps the capacity again. Nor is it made where the budgets, without the pod, leave no space for a slot: refused
// says so.
func (l Observer) RemovePodHolding(pod PodRef, resourceVersion uint64, spec Slot) (made bool, refused *Rejection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.endSlotsOfGone(pod)
	c := l.byUID[pod.UID]
	if c == nil || c.state != Bound || c.within != nil || l.flags[c.node]&nodeKnown == 0 || l.slots[spec.Ref] != nil {
		l.removePod(c, pod, resourceVersion)
		return false, nil
	}
	i := c.node
	spec.Node, spec.Request, spec.Caller = l.names[i], l.besidesDRA(i, c.request.Capacity()), c.caller
	left := c.leftDevices()
	l.removePod(c, pod, resourceVersion)
	p := spec.Placement()
	m := l.limiterOf(&p, p.Caller)
	v := m.whole
	if v.Reason == Fits {
		v = m.keep(p.Request, nil, nil)
	}
	if v.Reason != Fits {
		return false, l.rejectSlot(&spec, &p, v, nil)
	}
	l.keep(&spec, i, left)
	return true, nil
}
