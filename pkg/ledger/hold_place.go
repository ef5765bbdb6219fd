package ledger

import (
	"slices"
	"time"
)

// ObserveHold records a hold that was granted before: its object says so. It is
// never refused. It reports whether there was no such hold yet; one that was
// there gets the deadline observed. Pods that were seen bound with it before it
// was itself are linked with it; it may end at once because of that.
func (l Observer) ObserveHold(spec Hold) bool {
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
func (l *account) keep(spec *Hold, i int32, a *allotment) *entry {
	h := l.addSlot(spec, i, nil, a)
	l.setExpiry(h)
	l.record(HoldPlaced, h, h.pod)
	return h
}

// linkEarlier links a slot with the pods that were observed before it was. Room
// kept for one pod that turns out to be gone, or elsewhere, is given back.
func (l *account) linkEarlier(h *entry) {
	var own *entry
	if h.pod.Name != "" {
		own = l.claimOf(h.pod)
	}
	var users []*entry
	for c := l.nodes[h.node].first; c != nil; c = c.next {
		named := c.boundBy != nil && c.boundBy.ref == h.slot.ref && h.isOf(c.boundBy.uid)
		if c.isClaim() && c.within == nil && (named || c == own) && h.mayBeUsedBy(c.pod) {
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
		l.record(ClaimLinked, c, c.pod)
		if c.state == Bound {
			l.endSlotsOfBound(c)
		}
	}
	elsewhere := own != nil && own.state == Bound && own.within != h
	if !ended() && h.pod.Name != "" && (elsewhere || l.gone.has(h.pod.UID)) {
		l.endSlot(h, HoldReleased, PodRef{})
	}
}

// setSlotDeadline changes when a slot expires.
func (l *account) setSlotDeadline(h *entry, at time.Time) {
	if h.deadline.Equal(at) {
		return
	}
	h.deadline, h.overdue = at, false
	l.setExpiry(h)
	l.record(HoldPlaced, h, h.pod)
}

// SetHoldDeadline changes when the holds of a reservation expire; zero means
// never. It returns how many there are.
func (l Observer) SetHoldDeadline(namespace, name string, at time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	holds := l.reservation(nameKey{namespace, name})
	for _, h := range holds {
		l.setSlotDeadline(h, at)
	}
	return len(holds)
}

// ReleaseHolds ends the holds of a reservation, or only those of the slots
// named, and returns how many it ended. Pods that use them keep their claims.
func (l Observer) ReleaseHolds(namespace, name string, slots ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := 0
	for _, h := range l.reservation(nameKey{namespace, name}) {
		if len(slots) == 0 || slices.Contains(slots, h.slot.ref.Slot) {
			l.endSlot(h, HoldReleased, PodRef{})
			count++
		}
	}
	return count
}

// RemovePodHolding records that a bound pod is gone and keeps its room by a hold,
// in one step: nobody else can take the room in between. The hold keeps what the
// pod used, on its node: spec.Node, spec.Request and spec.Devices are not looked at. It reports
// whether the hold was made. It was not where the pod was not Bound, the node
// does not exist, another hold has that name, or the pod used a hold that is
// still there: that one keeps the room again.
func (l Observer) RemovePodHolding(pod PodRef, resourceVersion uint64, spec Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.endSlotsOfGone(pod)
	c := l.byUID[pod.UID]
	if c == nil || c.state != Bound || c.within != nil || l.flags[c.node]&nodeKnown == 0 || l.slots[spec.Ref] != nil {
		l.removePod(c, pod, resourceVersion)
		return false
	}
	i := c.node
	spec.Node, spec.Request = l.nodes[i].name, c.request
	left := c.leftDevices()
	l.removePod(c, pod, resourceVersion)
	l.keep(&spec, i, left)
	return true
}
