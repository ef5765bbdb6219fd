package ledger

import (
	"slices"
	"time"
)

// What follows keeps a replica: a second Ledger that follows another one by what its
// journal says (pkg/mirror). Nothing is decided in a replica. Its holds have no deadlines,
// because the other ledger says when they end, and its revisions are its own.

// Replica is a ledger that follows another one. Make one with NewReplica.
type Replica struct{ Observer }

// NewReplica returns an empty replica.
func NewReplica(o Options) *Replica { return &Replica{New(o).Observer} }

// CopyClaim makes a replica's claim what another ledger says it is. The hold it uses
// must have been copied before. What was kept for the pod in memory has turned into it.
func (l *Replica) CopyClaim(v *ClaimView) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.widen()
	l.gone.forget(v.Pod.UID)
	c := l.exactly(v.Pod, true)
	kind := copyEvents[v.State]
	movedFrom := ""
	if c == nil {
		l.dropInMemory(v.Pod)
		c = l.newClaim(&Placement{Pod: v.Pod})
	} else {
		if from := l.nodes[c.node].name; from != v.Node {
			kind, movedFrom = ClaimMoved, from
		} else if !c.request.Equal(v.Request) {
			kind = ClaimResized
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
	if c.within = l.slots[v.Hold]; c.within != nil && c.within.node != i {
		c.within = nil
	}
	l.setState(c, v.State)
	l.put(c, i)
	l.recordMove(kind, c, c.pod, movedFrom)
}

// dropInMemory ends what a replica keeps for a pod in memory, silently: the pod's claim
// says what has become of it.
func (l *account) dropInMemory(pod PodRef) {
	if e := l.exactly(pod, false); e != nil {
		i := e.node
		l.drop(e)
		l.recycle(e)
		l.dropIfEmpty(i)
	}
}

// IdentifyClaim gives a replica's claim, or slot in memory, that was made by name the UID
// another ledger has found to be its pod's.
func (l *Replica) IdentifyClaim(pod PodRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone.forget(pod.UID)
	byName := PodRef{Namespace: pod.Namespace, Name: pod.Name}
	for _, claim := range []bool{true, false} {
		if e := l.exactly(byName, claim); e != nil && l.exactly(pod, claim) == nil {
			l.adopt(e, pod.UID)
			return
		}
	}
}

// copyEvents is what a replica's journal says of a claim in a state.
var copyEvents = [numStates]EventType{Binding: ClaimBinding, Bound: ClaimBound}

// EndClaim ends a replica's claim as another ledger did, and reports whether there
// was one. ClaimRemoved means that the pod is gone.
func (l *Replica) EndClaim(pod PodRef, why EventType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if why == ClaimRemoved {
		l.gone.add(pod.UID, 0)
	}
	c := l.exactly(pod, true)
	if c == nil {
		return false
	}
	l.release(c, why)
	return true
}

// CopyHold makes a replica's hold what another ledger says it is, with the devices it
// was given there. One in memory is known by its pod; what it is within must have been
// copied before.
func (l *Replica) CopyHold(v *HoldView) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.widen()
	spec := v.Hold
	spec.Deadline = time.Time{}
	if spec.InMemory() {
		l.gone.forget(spec.Pod.UID)
		l.dropInMemory(spec.Pod)
		if c := l.exactly(spec.Pod, true); c != nil {
			l.release(c, ClaimBindFailed)
		}
	}
	var given *allotment
	if spec.Devices != nil || v.Given != nil {
		given = &allotment{request: spec.Devices, given: v.Given}
	}
	if h := l.slots[spec.Ref]; h != nil {
		if l.nodes[h.node].name == spec.Node && h.pod == spec.Pod && h.slot.policy == spec.Policy && h.request.Equal(spec.Request) {
			if !slices.EqualFunc(h.given(), v.Given, sameGiven) {
				l.regive(h, given) // its pods use it still
				l.record(HoldPlaced, h, h.pod)
			}
			h.slot.preemptible, h.priority, h.scheduler, h.overdue = spec.Preemptible, spec.Priority, spec.Scheduler, v.Overdue
			return
		}
		l.endSlot(h, HoldReleased, PodRef{})
	}
	i := l.ensureNode(spec.Node)
	within := l.slots[v.Within]
	if within != nil && within.node != i {
		within = nil
	}
	h := l.addSlot(&spec, i, within, given)
	h.overdue = v.Overdue
	l.record(HoldPlaced, h, h.pod)
}

// EndHold ends a replica's hold as another ledger did, and reports whether there was
// one. The claims that used it stay.
func (l *Replica) EndHold(ref HoldRef, why EventType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endCopy(l.slots[ref], why)
}

// EndInMemory ends what a replica keeps for a pod in memory as another ledger did, and
// reports whether there was anything.
func (l *Replica) EndInMemory(pod PodRef, why EventType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endCopy(l.exactly(pod, false), why)
}

func (l *account) endCopy(e *entry, why EventType) bool {
	if e != nil {
		l.endSlot(e, why, PodRef{})
	}
	return e != nil
}
