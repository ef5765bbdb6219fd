package ledger

import (
	"slices"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// ObserveNode records what the API server says of a node and reports whether
// that was news. Use that does not fit what the node offers stays recorded.
func (l Observer) ObserveNode(o NodeObservation) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.widen()
	i := l.ensureNode(o.Name)
	n := l.nodes[i]
	flags := nodeKnown
	if o.Unschedulable {
		flags |= nodeCordoned
	}
	allocatable := make([]int64, l.stride)
	for _, a := range o.Allocatable {
		allocatable[a.Column] = a.Value
	}
	if l.flags[i] == flags && n.uid == o.UID && sameRow(n.allocatable, allocatable) {
		return false
	}
	n.uid, n.allocatable, l.flags[i] = o.UID, allocatable, flags
	l.refresh(i)
	l.recordNode(NodeUpdated, o.Name, &rareChange{
		nodeUID: o.UID, allocatable: slices.Clone(o.Allocatable), unschedulable: o.Unschedulable,
	})
	return true
}

// sameRow compares rows of which one may be shorter: what it lacks is 0.
func sameRow(a, b []int64) bool {
	for c := range max(len(a), len(b)) {
		if at(a, resources.Column(c)) != at(b, resources.Column(c)) {
			return false
		}
	}
	return true
}

// RemoveNode records that a node was deleted and offers nothing any more. What is kept
// there in memory ends: until its deadline it would keep its pods from every other node.
// Claims and the slots of reservations stay: they count again should a node of that name
// come back.
func (l Observer) RemoveNode(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, ok := l.nodeIndex[name]
	if !ok || l.flags[i]&nodeKnown == 0 {
		return false
	}
	n := l.nodes[i]
	l.recordNode(NodeRemoved, name, &rareChange{nodeUID: n.uid})
	n.uid, n.allocatable, l.flags[i] = "", nil, 0
	l.refresh(i)
	inMemory := slices.DeleteFunc(slices.Clone(n.holds), func(h *hold) bool { return !h.InMemory() })
	slices.SortFunc(inMemory, func(a, b *hold) int { return comparePods(a.Pod, b.Pod) })
	for _, h := range inMemory {
		l.endHold(h, HoldReleased, PodRef{})
	}
	l.dropIfEmpty(i)
	return true
}

// ObservePod records that a pod, bound and not finished, is on a node. It is
// never refused. A claim elsewhere follows the pod.
func (l Observer) ObservePod(o PodObservation) Observed {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone.has(o.Pod.UID) {
		if l.gone.newerOrSame(o.Pod.UID, o.ResourceVersion) {
			return ObservedNothing
		}
		l.gone.forget(o.Pod.UID)
	}
	c := l.lookup(o.Pod)
	if c == nil {
		return l.observeNew(&o)
	}
	if o.ResourceVersion != 0 && o.ResourceVersion < c.version {
		return ObservedNothing
	}
	c.version = max(c.version, o.ResourceVersion)
	l.adopt(c, o.Pod.UID)
	if l.nodes[c.node].name != o.Node {
		l.move(c, &o)
		return ObservedMoved
	}
	return l.observeInPlace(c, &o)
}

// observeNew makes the claim of a pod that nobody has begun to bind here. What is kept
// for it in memory on that node turns into the claim. A pod on the node of a slot that is
// kept for it alone was bound as it was granted.
func (l *account) observeNew(o *PodObservation) Observed {
	p := &Placement{Pod: o.Pod, Node: o.Node, Request: o.Request, Scheduler: o.Scheduler, Priority: o.Priority}
	outcome, i := ObservedNew, l.ensureNode(o.Node)
	var c *claim
	var within *hold
	switch g := l.inMemory(o.Pod); {
	case g != nil && g.node == i:
		l.detach(g)
		c = l.turn(g, p)
		within, outcome = c.hold, ObservedConfirmed
	case g != nil:
		l.endHold(g, HoldReleased, PodRef{})
		outcome = ObservedMoved
		fallthrough
	default:
		c = l.newClaim(p)
	}
	c.version = o.ResourceVersion
	c.devices = observedDevices(c, o.Devices)
	l.index(c, outcome == ObservedConfirmed)
	l.link(c, i, o)
	if c.hold == nil {
		c.hold = within
	}
	if outcome == ObservedNew && c.hold != nil && c.hold.isFor(o.Pod) {
		outcome = ObservedConfirmed
	}
	l.place(c, i)
	l.bound(c)
	return outcome
}

// link tells a claim, which is about to be placed, what its pod was bound with.
func (l *account) link(c *claim, i int32, o *PodObservation) {
	c.hold, c.boundBy = nil, nil
	if o.Hold != (HoldRef{}) {
		c.boundBy = &bond{o.Hold, o.HoldUID}
	}
	if len(l.holds) > 0 {
		c.hold = l.usedHold(i, o)
	}
}

// usedHold finds the hold a pod observed bound on a node was bound with: the one
// it names, or the first kept for it alone. Whether it fits is not asked any
// more. A reservation made anew under the name was not what the pod used.
func (l *account) usedHold(i int32, o *PodObservation) *hold {
	var own *hold
	for h := l.holdsByPod[o.Pod.key()]; h != nil && own == nil; h = h.samePod {
		if !h.InMemory() && h.isFor(o.Pod) {
			own = h
		}
	}
	named := l.holds[o.Hold]
	if named != nil && !named.isOf(o.HoldUID) {
		named = nil
	}
	for _, h := range []*hold{named, own} {
		if h != nil && h.node == i && l.mayHaveUsed(h, o.Pod) {
			return h
		}
	}
	return nil
}

// mayHaveUsed reports whether a pod can be one that was bound with a hold.
func (l *account) mayHaveUsed(h *hold, pod PodRef) bool {
	taken := h.Policy == Once && h.used()
	return h.Ref.Namespace == pod.Namespace && !taken && (h.Pod.Name == "" || h.isFor(pod))
}

func (l *account) move(c *claim, o *PodObservation) {
	from, left := c.node, c.hold
	l.retract(c)
	if c.devices != nil && c.devices.said {
		c.devices = nil // those of the other node
	}
	c.request, c.devices = o.Request, observedDevices(c, o.Devices)
	i := l.ensureNode(o.Node)
	l.link(c, i, o)
	l.place(c, i)
	l.setState(c, Bound)
	l.recordMove(ClaimMoved, c, &rareChange{movedFrom: l.nodes[from].name})
	l.endHoldsOfBound(c)
	if left != nil {
		l.settle(left, nil)
	}
	l.dropIfEmpty(from)
}

func (l *account) observeInPlace(c *claim, o *PodObservation) Observed {
	a := c.devices
	if a != nil || o.Devices != nil {
		a = observedDevices(c, o.Devices)
	}
	resized := !c.request.Equal(o.Request) || !a.same(c.devices)
	if resized {
		i := c.node
		l.retract(c)
		c.request, c.devices = o.Request, a
		l.place(c, i)
	} else {
		c.request, c.devices = o.Request, a // equal; keeps one copy in memory instead of two
	}
	switch {
	case c.state != Bound:
		l.bound(c)
		return ObservedConfirmed
	case resized:
		l.record(ClaimResized, c)
		return ObservedResized
	default:
		return ObservedNothing
	}
}

// ObserveUnbound records that a pod exists and has no node. That releases
// nothing, because what it tells may be older than the claim; a claim made
// before the pod existed gets the pod's UID.
func (l Observer) ObserveUnbound(pod PodRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.lookup(pod); c != nil {
		l.adopt(c, pod.UID)
	} else if g := l.inMemory(pod); g != nil && g.identify(pod) {
		l.recordHold(HoldIdentified, g, g.Pod)
	}
}

// RemovePod records that a pod was deleted, or has finished (phase Succeeded or
// Failed), and reports whether it had a claim. resourceVersion is the newest
// known of the pod, 0 if unknown.
func (l Observer) RemovePod(pod PodRef, resourceVersion uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.endHoldsOfGone(pod)
	c := l.byUID[pod.UID]
	if pod.UID == "" || c == nil {
		l.gone.add(pod.UID, resourceVersion)
		return false
	}
	l.removeClaim(c, resourceVersion)
	return true
}

func (l *account) removeClaim(c *claim, resourceVersion uint64) {
	l.gone.add(c.pod.UID, max(resourceVersion, c.version))
	l.release(c, ClaimRemoved)
}

// endHoldsOfGone ends the holds that were kept for a pod that is gone alone.
func (l *account) endHoldsOfGone(pod PodRef) {
	if len(l.holdsByPod) == 0 {
		return
	}
	for h := l.holdsByPod[pod.key()]; h != nil; {
		next := h.samePod
		if pod.UID != "" && h.Pod.UID == pod.UID {
			l.endHold(h, HoldReleased, PodRef{})
		}
		h = next
	}
}
