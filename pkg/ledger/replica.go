package ledger

import (
	"slices"
	"time"
)

// What follows keeps a replica: a second Ledger that follows another one by what its
// journal says (pkg/mirror). Nothing is decided in a replica. Its slots have no deadlines,
// because the other ledger says when they end, and its revisions are its own. Only what is assumed has a deadline: the
// other ledger is about to decide on it, and may never tell of it.

// Replica is a ledger that follows another one. Make one with NewReplica.
type Replica struct{ Observer }

// NewReplica returns an empty replica.
func NewReplica(o Options) *Replica { return &Replica{New(o).observer} }

// CopyAllocation makes a replica's allocation what another ledger says it is. The slot it uses
// must have been copied before. What was kept for the pod in memory has turned into it.
func (l *Replica) CopyAllocation(v *AllocationView) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.widen()
	l.gone.forget(v.Pod.UID)
	c := l.exactly(v.Pod, true)
	kind := copyEvents[v.State]
	movedFrom := ""
	if c == nil {
		l.dropInMemory(v.Pod)
		c = l.newAllocation(&Placement{Pod: v.Pod})
	} else {
		if from := l.names[c.node]; from != v.Node {
			kind, movedFrom = AllocationMoved, from
		} else if !c.request.Equal(v.Request) {
			kind = AllocationResized
		}
		from := c.node
		l.detach(c)
		defer l.dropIfEmpty(from)
	}
	c.request, c.scheduler, c.priority = v.Request, v.Scheduler, v.Priority
	if c.devices = nil; v.Given != nil {
		c.devices = &allotment{given: v.Given}
	}
	i := l.ensureNode(v.Node)
	if c.within = l.slots[v.Slot]; c.within != nil && c.within.node != i {
		c.within = nil
	}
	l.setState(c, v.State)
	l.put(c, i)
	l.recordMove(kind, c, c.pod, movedFrom)
}

// dropInMemory ends what a replica keeps for a pod in memory, silently: the pod's allocation
// says what has become of it.
func (l *account) dropInMemory(pod PodRef) {
	if e := l.exactly(pod, false); e != nil {
		i := e.node
		l.drop(e)
		l.recycle(e)
		l.dropIfEmpty(i)
	}
}

// IdentifyAllocation gives a replica's allocation, or slot in memory, that was made by name the UID
// another ledger has found to be its pod's.
func (l *Replica) IdentifyAllocation(pod PodRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone.forget(pod.UID)
	byName := PodRef{Namespace: pod.Namespace, Name: pod.Name}
	for _, allocation := range []bool{true, false} {
		if e := l.exactly(byName, allocation); e != nil && l.exactly(pod, allocation) == nil {
			l.adopt(e, pod.UID)
			return
		}
	}
}

// copyEvents is what a replica's journal says of an allocation in a state.
var copyEvents = [numStates]EventType{Binding: AllocationBinding, Bound: AllocationBound}

// EndAllocation ends a replica's allocation as another ledger did, and reports whether there
// was one. AllocationRemoved means that the pod is gone.
func (l *Replica) EndAllocation(pod PodRef, why EventType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if why == AllocationRemoved {
		l.gone.add(pod.UID, 0)
	}
	c := l.exactly(pod, true)
	if c == nil {
		return false
	}
	l.release(c, why)
	return true
}

// CopySlot makes a replica's slot what another ledger says it is, with the devices it
// was given there. One in memory is known by its pod; what it is within must have been
// copied before.
func (l *Replica) CopySlot(v *SlotView) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.widen()
	spec := v.Slot
	spec.Deadline = time.Time{}
	if spec.InMemory() {
		l.gone.forget(spec.Pod.UID)
		l.dropInMemory(spec.Pod)
		if c := l.exactly(spec.Pod, true); c != nil {
			l.release(c, AllocationBindFailed)
		}
	}
	var given *allotment
	if spec.Devices != nil || v.Given != nil {
		given = &allotment{request: spec.Devices, given: v.Given}
	}
	if h := l.slots[spec.Ref]; h != nil {
		if l.names[h.node] == spec.Node && h.pod == spec.Pod && h.slot.policy == spec.Policy && h.request.Equal(spec.Request) {
			if !slices.EqualFunc(h.given(), v.Given, sameGiven) {
				l.regive(h, given) // its pods use it still
				l.record(SlotPlaced, h, h.pod)
			}
			h.slot.preemptible, h.priority, h.scheduler, h.overdue = spec.Preemptible, spec.Priority, spec.Scheduler, v.Overdue
			return
		}
		l.endSlot(h, SlotReleased, PodRef{})
	}
	i := l.ensureNode(spec.Node)
	within := l.slots[v.Within]
	if within != nil && within.node != i {
		within = nil
	}
	h := l.addSlot(&spec, i, within, given)
	h.overdue = v.Overdue
	l.record(SlotPlaced, h, h.pod)
}

// EndSlot ends a replica's slot as another ledger did: one in memory, which has no ref, by
// its pod. The allocations that used it stay.
func (l *Replica) EndSlot(ref SlotRef, pod PodRef, why EventType) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.slots[ref]
	if ref.Name == "" {
		e = l.exactly(pod, false)
	}
	if e != nil {
		l.endSlot(e, why, PodRef{})
	}
}

// Assume counts a pod on a node, where the replica has nothing of it but what was assumed before. What the other ledger
// says of the pod takes its place; Forget or Expire ends it.
func (l *Replica) Assume(p *Placement, deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.widen()
	if l.exactly(p.Pod, true) != nil {
		return
	}
	if e := l.exactly(p.Pod, false); e != nil && e.deadline == never {
		return
	}
	l.dropInMemory(p.Pod)
	spec := Slot{Pod: p.Pod, Node: p.Node, Request: p.Request, Scheduler: p.Scheduler, Priority: p.Priority, Deadline: deadline}
	e := l.addSlot(&spec, l.ensureNode(p.Node), nil, nil)
	l.schedule(e)
	l.record(SlotPlaced, e, e.pod)
}

// Forget ends what Assume has counted, where the other ledger has said nothing of the pod since.
func (l *Replica) Forget(pod PodRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.exactly(pod, false); e != nil && e.deadline != never {
		l.endSlot(e, SlotReleased, PodRef{})
	}
}
