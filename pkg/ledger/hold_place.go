package ledger

import (
	"cmp"
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
	if h := l.holds[spec.Ref]; h != nil {
		l.setHoldDeadline(h, spec.Deadline)
		return false
	}
	h := l.addHold(&spec, l.ensureNode(spec.Node), nil, l.observedGiven(&spec))
	l.setExpiry(h)
	l.recordHold(HoldPlaced, h, h.Pod)
	l.linkEarlier(h)
	return true
}

// linkEarlier links a hold with the pods that were observed before it was. Room
// kept for one pod that turns out to be gone, or elsewhere, is given back.
func (l *account) linkEarlier(h *hold) {
	var own *claim
	if h.Pod.Name != "" {
		own = l.lookup(h.Pod)
	}
	var users []*claim
	for c := l.nodes[h.node].claims; c != nil; c = c.next {
		named := c.boundBy != nil && c.boundBy.ref == h.Ref && h.isOf(c.boundBy.uid)
		if c.hold == nil && (named || c == own) && l.mayHaveUsed(h, c.pod) {
			users = append(users, c)
		}
	}
	slices.SortFunc(users, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.pod.Name, b.pod.Name), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	for _, c := range users {
		if l.holds[h.Ref] != h || !l.mayHaveUsed(h, c.pod) {
			return
		}
		l.join(c, h)
		l.record(ClaimLinked, c)
		if c.state == Bound {
			l.endHoldsOfBound(c)
		}
	}
	elsewhere := own != nil && own.state == Bound && own.hold != h
	if l.holds[h.Ref] == h && h.Pod.Name != "" && (elsewhere || l.gone.has(h.Pod.UID)) {
		l.endHold(h, HoldReleased, PodRef{})
	}
}

// setHoldDeadline changes when a hold expires.
func (l *account) setHoldDeadline(h *hold, at time.Time) {
	if h.Deadline.Equal(at) {
		return
	}
	h.Deadline, h.overdue = at, false
	l.setExpiry(h)
	l.recordHold(HoldPlaced, h, h.Pod)
}

// SetHoldDeadline changes when the holds of a reservation expire; zero means
// never. It returns how many there are.
func (l Observer) SetHoldDeadline(namespace, name string, at time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	holds := l.reservation(nameKey{namespace, name})
	for _, h := range holds {
		l.setHoldDeadline(h, at)
	}
	return len(holds)
}

// SetHoldPriority changes how important the holds of a reservation are to pods
// that may preempt them. It returns how many there are.
func (l Observer) SetHoldPriority(namespace, name string, priority int32) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	holds := l.reservation(nameKey{namespace, name})
	for _, h := range holds {
		if h.Priority != priority {
			h.Priority = priority
			l.recordHold(HoldPlaced, h, h.Pod)
		}
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
		if len(slots) == 0 || slices.Contains(slots, h.Ref.Slot) {
			l.endHold(h, HoldReleased, PodRef{})
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
	defer l.endHoldsOfGone(pod)
	c := l.byUID[pod.UID]
	if pod.UID == "" || c == nil {
		l.gone.add(pod.UID, resourceVersion)
		return false
	}
	known := l.flags[c.node]&nodeKnown != 0
	if l.holds[spec.Ref] != nil || c.state != Bound || !known || c.hold != nil {
		l.removeClaim(c, resourceVersion)
		return false
	}
	spec.Node, spec.Request = l.nodes[c.node].name, c.request
	var given []GivenDevices
	spec.Devices, given = c.leftDevices()
	l.removeClaim(c, resourceVersion)
	h := l.addHold(&spec, l.ensureNode(spec.Node), nil, given)
	l.setExpiry(h)
	l.recordHold(HoldPlaced, h, h.Pod)
	return true
}
