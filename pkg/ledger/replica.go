package ledger

import (
	"cmp"
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
	c := l.exactly(v.Pod)
	kind := copyEvents[v.State]
	var movedFrom *rareChange
	if c == nil {
		l.dropInMemory(v.Pod)
		c = l.newClaim(&Placement{Pod: v.Pod})
		l.index(c, false)
	} else {
		if from := l.nodes[c.node].name; from != v.Node {
			kind, movedFrom = ClaimMoved, &rareChange{movedFrom: from}
		} else if !c.request.Equal(v.Request) {
			kind = ClaimResized
		}
		from := c.node
		l.retract(c)
		defer l.dropIfEmpty(from)
	}
	c.request, c.scheduler, c.priority = v.Request, v.Scheduler, v.Priority
	if c.devices = nil; v.Given != nil {
		c.devices = &allotment{given: v.Given}
	}
	i := l.ensureNode(v.Node)
	if c.hold = l.holds[v.Hold]; c.hold != nil && c.hold.node != i {
		c.hold = nil
	}
	l.place(c, i)
	l.setState(c, v.State)
	l.recordMove(kind, c, movedFrom)
}

// dropInMemory ends what a replica keeps for a pod in memory, silently: the pod's claim
// says what has become of it.
func (l *account) dropInMemory(pod PodRef) {
	if g := l.inMemoryOf(pod); g != nil {
		node := g.node
		l.dropHold(g)
		l.recycle(g)
		l.dropIfEmpty(node)
	}
}

// IdentifyClaim gives a replica's claim, or slot in memory, that was made by name the UID
// another ledger has found to be its pod's.
func (l *Replica) IdentifyClaim(pod PodRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone.forget(pod.UID)
	byName := PodRef{Namespace: pod.Namespace, Name: pod.Name}
	if c := l.exactly(byName); c != nil && l.byUID[pod.UID] == nil {
		l.adopt(c, pod.UID)
	} else if g := l.inMemoryOf(byName); g != nil && l.inMemoryOf(pod) == nil && g.identify(pod) {
		l.recordHold(HoldIdentified, g, g.Pod)
	}
}

// exactly finds the claim of a pod as another ledger named it. That one made by name
// is the pod's is for the other ledger to find out.
func (l *account) exactly(pod PodRef) *claim {
	if pod.UID != "" {
		return l.byUID[pod.UID]
	}
	if c := l.byName[pod.key()]; c != nil && c.pod.UID == "" {
		return c
	}
	return nil
}

// inMemoryOf finds the slot in memory of a pod as another ledger named it.
func (l *account) inMemoryOf(pod PodRef) *hold {
	for h := l.holdsByPod[pod.key()]; h != nil && h.InMemory(); h = h.samePod {
		if h.Pod.UID == pod.UID {
			return h
		}
	}
	return nil
}

// copyEvents is what a replica's journal says of a claim in a state.
var copyEvents = [numStates]EventType{Binding: ClaimBinding, Bound: ClaimBound}

// EndClaim ends a replica's claim as another ledger did, and reports whether there
// was one. ClaimRemoved means that the pod is gone.
func (l *Replica) EndClaim(pod PodRef, why EventType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.exactly(pod)
	if why == ClaimRemoved {
		l.gone.add(pod.UID, 0)
	}
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
	h := l.holds[spec.Ref]
	if spec.InMemory() {
		spec.Policy = cmp.Or(spec.Policy, Once)
		l.gone.forget(spec.Pod.UID)
		l.dropInMemory(spec.Pod)
		if c := l.exactly(spec.Pod); c != nil {
			l.release(c, ClaimBindFailed)
		}
	}
	if h != nil {
		if h.Node == spec.Node && h.Pod == spec.Pod && h.Policy == spec.Policy && h.Request.Equal(spec.Request) {
			if !slices.EqualFunc(h.given, v.Given, sameGiven) {
				l.regive(h, v.Given) // its pods use it still
				l.recordHold(HoldPlaced, h, h.Pod)
			}
			h.Preemptible, h.Priority, h.Scheduler, h.overdue = spec.Preemptible, spec.Priority, spec.Scheduler, v.Overdue
			return
		}
		l.endHold(h, HoldReleased, PodRef{})
	}
	within := l.holds[v.Within]
	if within != nil && within.Node != spec.Node {
		within = nil
	}
	h = l.addHold(&spec, l.ensureNode(spec.Node), within, v.Given)
	h.overdue = v.Overdue
	l.recordHold(HoldPlaced, h, h.Pod)
}

// EndHold ends a replica's hold as another ledger did, and reports whether there was
// one. The claims that used it stay.
func (l *Replica) EndHold(ref HoldRef, why EventType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.holds[ref]
	if h == nil {
		return false
	}
	l.endHold(h, why, PodRef{})
	return true
}

// EndInMemory ends what a replica keeps for a pod in memory as another ledger did, and
// reports whether there was anything.
func (l *Replica) EndInMemory(pod PodRef, why EventType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.inMemoryOf(pod)
	if g == nil {
		return false
	}
	l.endHold(g, why, PodRef{})
	return true
}
