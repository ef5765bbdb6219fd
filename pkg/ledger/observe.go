package ledger

import (
	"maps"
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
	flags := nodeKnown | l.flags[i]&(hasDevices|usesDRA|hasNominated)
	if o.Unschedulable {
		flags |= nodeCordoned
	}
	allocatable := make([]int64, l.stride)
	for _, a := range o.Allocatable {
		allocatable[a.Column] = a.Value
	}
	kind := NodeUpdated // a field that is not compared here never reaches readers of the journal
	if l.flags[i] == flags && n.uid == o.UID && sameRow(n.allocatable, allocatable) && slices.Equal(n.dra, o.DRA) {
		if maps.Equal(n.labels, o.Labels) {
			return false
		}
		kind = NodeLabeled
	}
	n.uid, n.labels, n.allocatable, n.dra, l.flags[i] = o.UID, o.Labels, allocatable, o.DRA, flags
	l.markDRA(i)
	n.leave()
	l.refresh(i)
	n.details = &EventDetails{
		NodeUID: o.UID, Allocatable: slices.Clone(o.Allocatable), DRA: o.DRA, Unschedulable: o.Unschedulable,
		Labels: o.Labels,
	}
	l.recordNode(kind, o.Name, n.details)
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

// RemoveNode records that a node was deleted and offers nothing any more. What is kept there in memory ends: until its
// deadline it would keep its pods from every other node. Allocations and the slots of reservations stay: they count
// again should a node of that name come back.
func (l Observer) RemoveNode(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, ok := l.nodeIndex[name]
	if !ok || l.flags[i]&nodeKnown == 0 {
		return false
	}
	n := l.nodes[i]
	l.recordNode(NodeRemoved, name, &EventDetails{NodeUID: n.uid})
	n.uid, n.labels, n.allocatable, n.dra, n.left, l.flags[i] = "", nil, nil, nil, nil, l.flags[i]&hasDevices
	l.markDRA(i)
	l.refresh(i)
	l.dropNominations(i)
	var inMemory []*entry
	for e := n.first; e != nil; e = e.next {
		if e.inMemory() {
			inMemory = append(inMemory, e)
		}
	}
	slices.SortFunc(inMemory, func(a, b *entry) int { return comparePods(a.pod, b.pod) })
	for _, e := range inMemory {
		l.endSlot(e, SlotReleased, PodRef{})
	}
	l.dropIfEmpty(i)
	return true
}

// ObservePod records that a pod, bound and not finished, is on a node. It is
// never refused. An allocation elsewhere follows the pod.
func (l Observer) ObservePod(o PodObservation) Observed {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone.has(o.Pod.UID) {
		if l.gone.newerOrSame(o.Pod.UID, o.ResourceVersion) {
			return ObservedNothing
		}
		l.gone.forget(o.Pod.UID)
	}
	c := l.find(o.Pod)
	if c == nil || !c.isAllocation() {
		if l.giveWay(o.Pod, o.Scheduler) > 0 {
			c = l.find(o.Pod)
		}
		return l.observeNew(c, &o)
	}
	if o.ResourceVersion != 0 && o.ResourceVersion < c.version {
		return ObservedNothing
	}
	c.version = max(c.version, o.ResourceVersion)
	l.adopt(c, o.Pod.UID)
	if l.names[c.node] != o.Node {
		l.move(c, &o)
		return ObservedMoved
	}
	outcome := l.observeInPlace(c, &o)
	if l.flags[c.node]&usesDRA != 0 {
		l.refreshDRA(c.node) // only now it is known that what the pod has is not by DRA
	}
	return outcome
}

// observeNew makes the allocation of a pod that nobody has begun to bind here. What is kept
// for it in memory on that node, e, turns into the allocation. A pod on the node of a slot that
// is kept for it alone was bound as it was granted.
func (l *account) observeNew(e *entry, o *PodObservation) Observed {
	p := &Placement{
		Pod: o.Pod, Node: o.Node, Request: o.Request, Scheduler: o.Scheduler, Caller: o.Caller,
		Priority: o.Priority,
	}
	outcome, i := ObservedNew, l.ensureNode(o.Node)
	if e != nil && e.node != i {
		l.endSlot(e, SlotReleased, PodRef{})
		outcome, e = ObservedMoved, nil
	}
	var within *entry
	if e != nil {
		within, outcome = e.within, ObservedConfirmed
		l.detach(e)
		l.turn(e, p)
	} else {
		e = l.newAllocation(p)
		e.node, e.prev = i, l.nodes[i].last
	}
	e.version = o.ResourceVersion
	e.devices = l.observedDevices(e, o)
	e.request = WithGiven(l.table, o.Request, e.given())
	l.link(e, i, o)
	if e.within == nil {
		e.within = within
	}
	if outcome == ObservedNew && e.within != nil && e.within.isFor(o.Pod) {
		outcome = ObservedConfirmed
	}
	l.attach(e)
	l.bound(e)
	return outcome
}

// link records what the pod of an allocation, which is about to be placed, was bound with.
func (l *account) link(c *entry, i int32, o *PodObservation) {
	c.within, c.boundBy = nil, nil
	if o.Slot != (SlotRef{}) {
		c.boundBy = &bond{o.Slot, o.SlotUID}
	}
	if len(l.slots) > 0 {
		c.within = l.usedSlot(i, o)
	}
}

// usedSlot finds the slot a pod observed bound on a node was bound with: the one it names, or the first kept for it
// alone. It need not fit any more. A reservation made anew under the name is not the one that the pod used.
func (l *account) usedSlot(i int32, o *PodObservation) *entry {
	named := l.slots[o.Slot]
	if named != nil && named.isOf(o.SlotUID) && named.node == i && named.mayBeUsedBy(o.Pod) {
		return named
	}
	for e := l.named[o.Pod.key()]; e != nil; e = e.sameName {
		if e.slot != nil && e.isFor(o.Pod) {
			if e.node == i && e.mayBeUsedBy(o.Pod) {
				return e
			}
			return nil
		}
	}
	return nil
}

// mayBeUsedBy reports whether a pod can be one that was bound with a slot.
func (e *entry) mayBeUsedBy(pod PodRef) bool {
	taken := e.slot.policy == Once && e.used()
	return e.slot.ref.Namespace == pod.Namespace && !taken && (e.pod.Name == "" || e.isFor(pod))
}

func (l *account) move(c *entry, o *PodObservation) {
	from, left := c.node, c.within
	l.detach(c)
	if c.devices != nil && c.devices.said {
		c.devices = nil // those of the other node
	}
	c.devices, c.growth = l.observedDevices(c, o), nil
	c.request = WithGiven(l.table, o.Request, c.given())
	i := l.ensureNode(o.Node)
	l.link(c, i, o)
	l.put(c, i)
	l.setState(c, Bound)
	l.recordMove(AllocationMoved, c, c.pod, l.names[from])
	l.endSlotsOfBound(c)
	if left != nil {
		l.settle(left, nil)
	}
	l.dropIfEmpty(from)
}

func (l *account) observeInPlace(c *entry, o *PodObservation) Observed {
	a := l.observedDevices(c, o)
	request := o.Request
	if a != nil {
		request = WithGiven(l.table, request, a.given)
	}
	request = c.seen(request, o.ResourceVersion)
	resized := !c.request.Equal(request) || !a.same(c.devices)
	if resized {
		l.detach(c)
		c.request, c.devices = request, a
		l.attach(c)
	} else {
		c.request, c.counts, c.devices = request, request, a // equal; keeps one copy in memory instead of two
	}
	switch {
	case c.state != Bound:
		l.bound(c)
		return ObservedConfirmed
	case resized:
		l.record(AllocationResized, c, c.pod)
		return ObservedResized
	default:
		return ObservedNothing
	}
}

// ObserveUnbound records that a pod of a scheduler exists and has no node. That releases no allocation, because this
// state may be older; one made before the pod existed gets the pod's UID. Slots that were kept for the pod before it
// existed, as another scheduler's, give way: it returns how many those are.
func (l Observer) ObserveUnbound(pod PodRef, scheduler string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := l.giveWay(pod, scheduler)
	if e := l.find(pod); e != nil {
		l.adopt(e, pod.UID)
	}
	return gone
}

// giveWay ends the slots that were promised for a pod of another scheduler than the one it has.
func (l *account) giveWay(pod PodRef, scheduler string) (count int) {
	if l.gone.has(pod.UID) {
		return 0 // what is kept is for a later one of the name
	}
	for _, e := range l.named[pod.key()].keptFor(pod) {
		if e.givesWayTo(scheduler) {
			l.endSlot(e, SlotReleased, PodRef{})
			count++
		}
	}
	return count
}

// givesWayTo reports whether a slot was promised for a pod of another scheduler than the one it has.
func (e *entry) givesWayTo(scheduler string) bool { return e.podToCome && e.scheduler != scheduler }

// RemovePod records that a pod was deleted, or has finished (phase Succeeded or Failed), and reports whether it had an
// allocation. resourceVersion is the newest known of the pod, 0 if unknown.
func (l Observer) RemovePod(pod PodRef, resourceVersion uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.byUID[pod.UID]
	alone := c != nil && c.listed && c.sameName == nil // nothing else goes by its name
	l.removePod(c, pod, resourceVersion)
	if !alone {
		l.endSlotsOfGone(pod)
	}
	return c != nil
}

// removePod ends a pod that has the allocation c, or none.
func (l *account) removePod(c *entry, pod PodRef, resourceVersion uint64) {
	defer l.endNomination(pod)
	if c == nil {
		l.gone.add(pod.UID, resourceVersion)
		return
	}
	l.gone.add(pod.UID, max(resourceVersion, c.version))
	l.release(c, AllocationRemoved)
}

// endSlotsOfGone ends the slots that were kept for a pod that is gone alone.
func (l *account) endSlotsOfGone(pod PodRef) {
	for e := l.named[pod.key()]; e != nil; {
		next := e.sameName
		if pod.UID != "" && e.pod.UID == pod.UID {
			l.endSlot(e, SlotReleased, PodRef{})
		}
		e = next
	}
}
