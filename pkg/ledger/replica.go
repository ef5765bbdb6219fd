package ledger

import (
	"slices"
	"time"
)

// What follows keeps a replica: a second Ledger that follows another one by what its
// journal says (pkg/mirror). Nothing is decided in a replica but dry runs and
// questions. Its claims and holds have no deadlines, because the other ledger says
// when they end, and its revisions are its own.

// CopyClaim makes a replica's claim what another ledger says it is. The hold it uses
// must have been copied before.
func (l *Ledger) CopyClaim(v *ClaimView) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.widen()
	l.gone.forget(v.Pod.UID)
	c := l.exactly(v.Pod)
	kind := copyEvents[v.State]
	var movedFrom *rareChange
	if c == nil {
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

// IdentifyClaim gives a replica's claim that was made by name the UID another ledger
// has found to be its pod's.
func (l *Ledger) IdentifyClaim(pod PodRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone.forget(pod.UID)
	if c := l.exactly(PodRef{Namespace: pod.Namespace, Name: pod.Name}); c != nil && l.byUID[pod.UID] == nil {
		l.adopt(c, pod.UID)
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

// copyEvents is what a replica's journal says of a claim in a state.
var copyEvents = [numStates]EventType{Reserved: ClaimReserved, Binding: ClaimBinding, Bound: ClaimBound}

// EndClaim ends a replica's claim as another ledger did, and reports whether there
// was one. ClaimRemoved means that the pod is gone.
func (l *Ledger) EndClaim(pod PodRef, why EventType) bool {
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
// was given there.
func (l *Ledger) CopyHold(v *HoldView) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.widen()
	spec := v.Hold
	spec.Deadline = time.Time{}
	if h := l.holds[spec.Ref]; h != nil {
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
	h := l.addHold(&spec, v.Given)
	h.overdue = v.Overdue
	l.recordHold(HoldPlaced, h, h.Pod)
}

// EndHold ends a replica's hold as another ledger did, and reports whether there was
// one. The claims that used it stay.
func (l *Ledger) EndHold(ref HoldRef, why EventType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.holds[ref]
	if h == nil {
		return false
	}
	l.endHold(h, why, PodRef{})
	return true
}
