package ledger

import (
	"slices"
	"time"
)

// HoldPlan is a set of holds decided in one step, all or nothing.
type HoldPlan struct {
	Holds []Hold
	// DryRun decides and changes nothing.
	DryRun bool
}

// HoldResult is the answer to a HoldPlan.
type HoldResult struct {
	// Granted is how many holds there are now: all of the plan's, or 0.
	Granted int
	// Existing has the holds that pods of the plan had before, by their index in
	// the plan: those holds of the plan were not made.
	Existing map[int]HoldRef
	// Rejections tells of each hold that was refused, in plan order.
	Rejections []Rejection
	// Revision is the ledger's revision the answer is true for.
	Revision uint64
}

// PlaceHolds decides holds as Reserve decides placements. The same hold again on
// the same node is a success, and so is another one for a pod that has a hold
// there already.
func (l *Ledger) PlaceHolds(plan HoldPlan, now time.Time) HoldResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !plan.DryRun {
		l.expire(now)
	}
	result := HoldResult{Existing: map[int]HoldRef{}}
	made := make([]*hold, 0, len(plan.Holds))
	for k := range plan.Holds {
		h, existing, rejection := l.tryHold(&plan.Holds[k])
		switch {
		case rejection != nil:
			result.Rejections = append(result.Rejections, *rejection)
		case existing != nil:
			result.Existing[k] = existing.Ref
		default:
			made = append(made, h)
		}
	}
	refused := len(result.Rejections) > 0
	if !refused {
		result.Granted = len(plan.Holds)
	}
	for k := len(made) - 1; k >= 0; k-- {
		if refused || plan.DryRun {
			l.dropHold(made[k])
		}
	}
	if !refused && !plan.DryRun {
		for _, h := range made {
			l.recordHold(HoldPlaced, h, h.Pod)
		}
	}
	result.Revision = l.revision
	return result
}

// tryHold places one hold without telling anybody, or finds the one that is
// there already.
func (l *Ledger) tryHold(spec *Hold) (made, existing *hold, rejection *Rejection) {
	p := &Placement{Pod: spec.Pod, Node: spec.Node, Request: spec.Request, Scheduler: spec.Scheduler, Priority: spec.Priority}
	refuse := func(v Verdict, on string) (*hold, *hold, *Rejection) {
		r := l.reject(p, v, nil)
		r.Hold, r.ClaimedOn = spec.Ref, on
		return nil, nil, r
	}
	if h := l.holds[spec.Ref]; h != nil {
		if h.Node == spec.Node && h.Request.Equal(spec.Request) {
			return nil, h, nil
		}
		return refuse(Verdict{Reason: HoldExists}, h.Node)
	}
	if spec.Pod.Name != "" {
		if l.gone.has(spec.Pod.UID) {
			return refuse(Verdict{Reason: PodGone}, "")
		}
		if c := l.lookup(spec.Pod); c != nil {
			return refuse(Verdict{Reason: PodClaimed}, l.nodes[c.node].name)
		}
		if h := l.holdFor(spec.Pod); h != nil {
			if h.Node == spec.Node && h.Request.Equal(spec.Request) {
				return nil, h, nil
			}
			return refuse(Verdict{Reason: ClaimedElsewhere}, h.Node)
		}
	}
	i, ok := l.nodeIndex[spec.Node]
	if !ok {
		return refuse(Verdict{Reason: NodeUnknown}, "")
	}
	if v := l.fits(i, spec.Request); v.Reason != Fits {
		return refuse(v, "")
	}
	return l.addHold(spec), nil, nil
}

// holdFor returns a hold kept for one pod alone, or nil.
func (l *Ledger) holdFor(pod PodRef) *hold {
	if len(l.holdsByPod) == 0 {
		return nil
	}
	for _, h := range l.holdsByPod[pod.key()] {
		if h.isFor(pod) {
			return h
		}
	}
	return nil
}

// ObserveHold records a hold that was granted before: its object says so. It is
// never refused. It reports whether there was no such hold yet; one that was
// there gets the deadline observed.
func (l *Ledger) ObserveHold(spec Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.holds[spec.Ref]; h != nil {
		l.setHoldDeadline(h, spec.Deadline)
		return false
	}
	h := l.addHold(&spec)
	l.recordHold(HoldPlaced, h, h.Pod)
	return true
}

// setHoldDeadline changes when a hold expires.
func (l *Ledger) setHoldDeadline(h *hold, at time.Time) {
	if h.Deadline.Equal(at) {
		return
	}
	h.Deadline, h.overdue = at, false
	switch {
	case !at.IsZero():
		l.deadlines.set(&h.expiry, at.UnixNano())
	case h.expiry.index >= 0:
		l.deadlines.remove(&h.expiry)
	}
	l.recordHold(HoldPlaced, h, h.Pod)
}

// SetHoldDeadline changes when the holds of a reservation expire; zero means
// never. It returns how many there are.
func (l *Ledger) SetHoldDeadline(namespace, name string, at time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	holds := l.reservations[nameKey{namespace, name}]
	for _, h := range holds {
		l.setHoldDeadline(h, at)
	}
	return len(holds)
}

// ReleaseHolds ends the holds of a reservation, or only those of the slots
// named, and returns how many it ended. Pods that use them keep their claims.
func (l *Ledger) ReleaseHolds(namespace, name string, slots ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := 0
	for _, h := range slices.Clone(l.reservations[nameKey{namespace, name}]) {
		if len(slots) == 0 || slices.Contains(slots, h.Ref.Slot) {
			l.endHold(h, HoldReleased, PodRef{})
			count++
		}
	}
	return count
}

// RemovePodHolding records that a bound pod is gone and keeps its room by a hold
// on its node, in one step: nobody else can take the room in between. It reports
// whether the pod was Bound and the node exists; else no hold is made.
func (l *Ledger) RemovePodHolding(pod PodRef, resourceVersion uint64, spec Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.endHoldsOfGone(pod)
	c := l.byUID[pod.UID]
	if pod.UID == "" || c == nil {
		l.gone.add(pod.UID, resourceVersion)
		return false
	}
	i, bound := c.node, c.state == Bound
	known := l.flags[i]&nodeKnown != 0
	if _, taken := l.holds[spec.Ref]; !bound || !known || taken {
		l.removeClaim(c, resourceVersion)
		return false
	}
	spec.Node = l.nodes[i].name
	h := l.addHold(&spec) // first, so that the node's account is never without either
	l.removeClaim(c, resourceVersion)
	l.recordHold(HoldPlaced, h, h.Pod)
	return true
}
