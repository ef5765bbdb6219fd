package ledger

import (
	"cmp"
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
// the same node, of the same size and for the same pod, is a success, and so is
// another one for a pod that has a hold of that size there already; their
// deadlines stay as they are. An overdue hold is none of these.
func (l *Ledger) PlaceHolds(plan HoldPlan, now time.Time) HoldResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !plan.DryRun {
		if _, more := l.expire(now); more {
			for k := range plan.Holds {
				l.expireAround(plan.Holds[k].Pod, plan.Holds[k].Node, plan.Holds[k].Ref, now)
			}
		}
	}
	made, result := l.tryHolds(plan.Holds, nil)
	if lacksDevices(result.Rejections) {
		made, result = l.tryHoldsShared(plan.Holds, made, result)
	}
	refused := len(result.Rejections) > 0
	if !refused {
		result.Granted = len(plan.Holds)
	}
	if refused || plan.DryRun {
		l.dropHolds(made)
	}
	if !refused && !plan.DryRun {
		for _, h := range made {
			l.recordHold(HoldPlaced, h, h.Pod)
		}
	}
	result.Revision = l.revision
	return result
}

// tryHolds places holds without telling anybody. shares are the devices that are meant for
// them, or nil.
func (l *account) tryHolds(specs []Hold, shares [][]GivenDevices) (made []*hold, result HoldResult) {
	result.Existing = map[int]HoldRef{}
	made = make([]*hold, 0, len(specs))
	for k := range specs {
		h, existing, rejection := l.tryHold(&specs[k], shareOf(shares, k))
		switch {
		case rejection != nil:
			result.Rejections = append(result.Rejections, *rejection)
		case existing != nil:
			result.Existing[k] = existing.Ref
		default:
			made = append(made, h)
		}
	}
	return made, result
}

// tryHoldsShared tries holds once more that lack devices. It returns no holds, and the same
// result, where that does not help.
func (l *account) tryHoldsShared(specs []Hold, made []*hold, result HoldResult) ([]*hold, HoldResult) {
	l.dropHolds(made)
	asks := make([]deviceAsk, len(specs))
	for k := range specs {
		if l.holds[specs[k].Ref] == nil {
			asks[k] = deviceAsk{specs[k].Node, l.wantsShare(&Placement{Pod: specs[k].Pod, Devices: specs[k].Devices})}
		}
	}
	if shares := l.shareOut(asks); shares != nil {
		again, better := l.tryHolds(specs, shares)
		if len(better.Rejections) == 0 {
			return again, better
		}
		l.dropHolds(again)
	}
	return nil, result
}

func (l *account) dropHolds(made []*hold) {
	for k := len(made) - 1; k >= 0; k-- {
		l.dropHold(made[k])
	}
}

// tryHold places one hold without telling anybody, or finds the one that is
// there already.
func (l *account) tryHold(spec *Hold, share []GivenDevices) (made, existing *hold, rejection *Rejection) {
	p := &Placement{
		Pod: spec.Pod, Node: spec.Node, Request: spec.Request, Scheduler: spec.Scheduler, Priority: spec.Priority,
		Devices: spec.Devices,
	}
	refuse := func(v Verdict, on string) (*hold, *hold, *Rejection) {
		r := l.reject(p, v, nil)
		r.Hold, r.ClaimedOn = spec.Ref, on
		return nil, nil, r
	}
	if h := l.holds[spec.Ref]; h != nil {
		if h.keepsFor(spec) && !h.overdue {
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
		switch h := l.holdFor(spec.Pod); {
		case h == nil:
		case h.keepsFor(spec):
			return nil, h, nil
		case h.Node == spec.Node:
			_, _, r := refuse(Verdict{Reason: HoldExists}, h.Node)
			r.Holders = []Holder{h.holder(1)}
			return nil, nil, r
		default:
			return refuse(Verdict{Reason: ClaimedElsewhere}, h.Node)
		}
	}
	i, ok := l.nodeIndex[spec.Node]
	if !ok {
		return refuse(Verdict{Reason: NodeUnknown}, "")
	}
	if v := l.fitsFree(i, p); v.Reason != Fits {
		return refuse(v, "")
	}
	var given []GivenDevices
	if a := l.takeShare(i, spec.Devices, share, &except{}); a != nil {
		given = a.given
	}
	return l.addHold(spec, given), nil, nil
}

// keepsFor reports whether a hold keeps the same room for the same pods.
func (h *hold) keepsFor(spec *Hold) bool {
	samePod := spec.Pod.Name == h.Pod.Name && (h.Pod.Name == "" || h.isFor(spec.Pod))
	return samePod && h.Node == spec.Node && h.Request.Equal(spec.Request) && spec.Devices.Matches(h.Devices)
}

// holdFor returns a hold kept for one pod alone that has not run out, or nil.
func (l *account) holdFor(pod PodRef) *hold {
	if len(l.holdsByPod) == 0 {
		return nil
	}
	for _, h := range l.holdsByPod[pod.key()] {
		if h.isFor(pod) && !h.overdue {
			return h
		}
	}
	return nil
}

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
	h := l.addHold(&spec, l.observedGiven(&spec))
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
	switch {
	case !at.IsZero():
		l.deadlines.set(&h.expiry, nanos(at))
	case h.expiry.index >= 0:
		l.deadlines.remove(&h.expiry)
	}
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
	h := l.addHold(&spec, given)
	l.recordHold(HoldPlaced, h, h.Pod)
	return true
}
