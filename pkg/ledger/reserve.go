package ledger

import (
	"time"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Reserve decides a plan in one step. What has expired at now makes room first. In mode
// AllOrNothing nothing is kept unless everything is; the rejections then still tell of
// every slot that has no room next to the others.
//
// A slot for a pod that has room already is the same success. One in memory is renewed:
// its deadline is put off, and it is resized where that fits. The same slot of a
// reservation again on the same node, of the same size and for the same pod, is there
// already, and so is another one for a pod that has one of that size there; their
// deadlines stay as they are. An overdue slot is none of these.
func (l *Ledger) Reserve(plan Plan, now time.Time) Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, more := l.expire(now); more {
		for k := range plan.Slots {
			l.expireAround(plan.Slots[k].Pod, plan.Slots[k].Node, plan.Slots[k].Ref, now)
		}
	}
	var one [1]step // most plans are of one slot; it needs no memory then
	steps, result := l.tryPlan(one[:0], &plan)
	for k := range steps {
		l.commit(&steps[k])
	}
	result.Revision = l.revision
	return result
}

// tryPlan decides a plan and makes its slots without telling anybody. Nothing is left
// of a plan that is refused.
func (l *account) tryPlan(steps []step, plan *Plan) ([]step, Result) {
	steps, result := l.trySlots(steps, plan.Slots, nil)
	if plan.Mode != Partial && lacksDevices(result.Rejections) {
		steps, result = l.tryShared(steps, plan.Slots, result)
	}
	if len(result.Rejections) > 0 && plan.Mode != Partial {
		l.undoAll(steps)
		steps, result.Granted, result.Existing = nil, 0, nil
	}
	result.Revision = l.revision
	return steps, result
}

// trySlots makes slots without telling anybody. shares are the devices that are meant for
// them, or nil. It appends what it did to steps.
func (l *account) trySlots(steps []step, slots []Hold, shares [][]GivenDevices) ([]step, Result) {
	var result Result
	if len(slots) > cap(steps) {
		steps = make([]step, 0, len(slots))
	}
	for k := range slots {
		s, existing, rejection := l.trySlot(&slots[k], shareOf(shares, k))
		switch {
		case rejection != nil:
			result.Rejections = append(result.Rejections, *rejection)
			continue
		case existing != nil:
			if result.Existing == nil {
				result.Existing = map[int]HoldRef{}
			}
			result.Existing[k] = existing.Ref
		case s.hold != nil:
			steps = append(steps, s)
		}
		result.Granted++
	}
	return steps, result
}

// tryShared tries slots once more that lack devices. It returns the same result, and no
// steps, where that does not help.
func (l *account) tryShared(steps []step, slots []Hold, result Result) ([]step, Result) {
	l.undoAll(steps)
	asks := make([]deviceAsk, len(slots))
	for k := range slots {
		asks[k] = deviceAsk{slots[k].Node, l.wantsShare(&slots[k])}
	}
	if shares := l.shareOut(asks); shares != nil {
		again, better := l.trySlots(nil, slots, shares)
		if len(better.Rejections) == 0 {
			return again, better
		}
		l.undoAll(again)
	}
	return nil, result
}

// step is one slot of a plan that was made, or renewed, and can still be undone.
type step struct {
	hold       *hold
	fresh      bool      // the plan made it
	identified bool      // it got its pod's UID
	resized    bool      // it was another size before:
	was        sizeOf    //
	deadline   time.Time // what was asked for
}

// sizeOf is what a slot keeps.
type sizeOf struct {
	request *resources.Request
	devices *DeviceRequest
	given   []GivenDevices
}

func (h *hold) size() sizeOf { return sizeOf{h.Request, h.Devices, h.given} }

// trySlot makes one slot without telling anybody, or finds the one that is there
// already. A step without a hold means that the pod needs none.
func (l *account) trySlot(spec *Hold, share []GivenDevices) (s step, existing *hold, rejection *Rejection) {
	p := spec.placement()
	if spec.InMemory() {
		s, rejection = l.tryMemory(spec, &p, share)
		return s, nil, rejection
	}
	if existing, rejection = l.findSlot(spec, &p); existing != nil || rejection != nil {
		return step{}, existing, rejection
	}
	i, ok := l.nodeIndex[spec.Node]
	v := Verdict{Reason: NodeUnknown}
	if ok {
		v = l.fit(i, &p, nil)
	}
	if v.Reason != Fits {
		return step{}, nil, l.rejectSlot(spec, &p, v, "")
	}
	return l.makeSlot(spec, i, nil, l.takeShare(i, spec.Devices, share, nil)), nil, nil
}

func (l *account) makeSlot(spec *Hold, i int32, within *hold, a *allotment) step {
	var given []GivenDevices
	if a != nil {
		given = a.given
	}
	return step{hold: l.addHold(spec, i, within, given), fresh: true}
}

// placement is what the slot asks for, as its pod would.
func (h *Hold) placement() Placement {
	return Placement{
		Pod: h.Pod, Node: h.Node, Request: h.Request, Scheduler: h.Scheduler, Priority: h.Priority, Holds: h.Holds, Devices: h.Devices,
	}
}

// rejectSlot refuses a slot of a reservation; on is the node that matters.
func (l *account) rejectSlot(spec *Hold, p *Placement, v Verdict, on string) *Rejection {
	r := l.reject(p, v, nil)
	r.Hold, r.ClaimedOn = spec.Ref, on
	return r
}

// findSlot finds the slot of a reservation that is there already, or what is in the way
// of it but want of room.
func (l *account) findSlot(spec *Hold, p *Placement) (existing *hold, rejection *Rejection) {
	if h := l.holds[spec.Ref]; h != nil {
		if h.keepsFor(spec) && !h.overdue && !h.away {
			return h, nil
		}
		return nil, l.rejectSlot(spec, p, Verdict{Reason: HoldExists}, h.Node)
	}
	if spec.Pod.Name == "" {
		return nil, nil
	}
	if l.gone.has(spec.Pod.UID) {
		return nil, l.rejectSlot(spec, p, Verdict{Reason: PodGone}, "")
	}
	if c := l.lookup(spec.Pod); c != nil {
		return nil, l.rejectSlot(spec, p, Verdict{Reason: PodClaimed}, l.nodes[c.node].name)
	}
	h := l.durableFor(spec.Pod)
	if h != nil && h.keepsFor(spec) {
		return h, nil
	}
	if h != nil && h.Node != spec.Node {
		return nil, l.rejectSlot(spec, p, Verdict{Reason: ClaimedElsewhere}, h.Node)
	}
	if h == nil {
		h = l.inMemory(spec.Pod)
	}
	if h != nil {
		rejection = l.rejectSlot(spec, p, Verdict{Reason: HoldExists}, h.Node)
		rejection.Holders = []Holder{h.holder(1)}
	}
	return nil, rejection
}

// keepsFor reports whether a hold keeps the same room for the same pods.
func (h *hold) keepsFor(spec *Hold) bool {
	samePod := spec.Pod.Name == h.Pod.Name && (h.Pod.Name == "" || h.isFor(spec.Pod))
	return samePod && h.Node == spec.Node && h.Request.Equal(spec.Request) && spec.Devices.Matches(h.Devices)
}

// durableFor returns a slot of a reservation that is kept for one pod alone and has not
// run out, or nil.
func (l *account) durableFor(pod PodRef) *hold {
	if len(l.holds) == 0 {
		return nil
	}
	for h := l.holdsByPod[pod.key()]; h != nil; h = h.samePod {
		if !h.InMemory() && h.isFor(pod) && !h.overdue {
			return h
		}
	}
	return nil
}

// tryMemory makes or renews a slot in memory. For a pod that has a claim there is
// nothing to keep.
func (l *account) tryMemory(spec *Hold, p *Placement, share []GivenDevices) (step, *Rejection) {
	if c := l.lookup(spec.Pod); c != nil {
		if on := l.nodes[c.node].name; on != spec.Node {
			return step{}, l.rejectElsewhere(p, on)
		}
		return step{}, nil
	}
	if g := l.inMemory(spec.Pod); g != nil {
		return l.renew(g, spec, p)
	}
	if h := l.durableFor(spec.Pod); h != nil && h.Node != spec.Node {
		return step{}, l.rejectElsewhere(p, h.Node)
	}
	i, within, rejection := l.admit(p)
	if rejection != nil {
		return step{}, rejection
	}
	return l.makeSlot(spec, i, within, l.takeShare(i, spec.Devices, share, within)), nil
}

func (l *account) rejectElsewhere(p *Placement, on string) *Rejection {
	r := l.reject(p, Verdict{Reason: ClaimedElsewhere}, nil)
	r.ClaimedOn = on
	return r
}

// renew grants a slot in memory to a pod that has one: on the same node it is the same
// success, as long as another size still fits.
func (l *account) renew(g *hold, spec *Hold, p *Placement) (step, *Rejection) {
	if g.Node != spec.Node {
		return step{}, l.rejectElsewhere(p, g.Node)
	}
	s := step{hold: g, deadline: spec.Deadline}
	if !g.Request.Equal(spec.Request) || !spec.Devices.Same(g.Devices) {
		at := l.detach(g)
		if v := l.fitInPlace(g, p); v.Reason != Fits {
			rejection := l.reject(p, v, g)
			l.attach(g, at)
			return step{}, rejection
		}
		s.resized, s.was = true, g.size()
		g.Request = spec.Request
		if a := l.allotInPlace(g, spec.Devices); a != nil {
			g.Devices, g.given = a.request, a.given
		} else {
			g.Devices, g.given = nil, nil
		}
		l.attach(g, at)
	}
	s.identified = g.identify(spec.Pod)
	return s, nil
}

// identify gives a slot made by name the UID of the pod that came to exist.
func (h *hold) identify(pod PodRef) bool {
	if h.Pod.UID != "" || pod.UID == "" {
		return false
	}
	h.Pod.UID = pod.UID
	return true
}

// admit finds room on the node of a placement for a pod that has nothing yet: in a
// hold it may use, or else in the node's free room.
func (l *account) admit(p *Placement) (int32, *hold, *Rejection) {
	if l.gone.has(p.Pod.UID) {
		return 0, nil, l.reject(p, Verdict{Reason: PodGone}, nil)
	}
	i, ok := l.nodeIndex[p.Node]
	if !ok {
		return 0, nil, l.reject(p, Verdict{Reason: NodeUnknown}, nil)
	}
	h, v := l.fitAny(i, p, l.candidates(p))
	if v.Reason != Fits {
		return 0, nil, l.reject(p, v, nil)
	}
	return i, h, nil
}

func (l *account) undoAll(steps []step) {
	for k := len(steps) - 1; k >= 0; k-- {
		l.undo(&steps[k])
	}
}

// undo takes a step back as if it had never been.
func (l *account) undo(s *step) {
	h := s.hold
	if s.fresh {
		l.dropHold(h)
		l.recycle(h)
		return
	}
	if s.resized {
		at := l.detach(h)
		h.Request, h.Devices, h.given = s.was.request, s.was.devices, s.was.given
		l.attach(h, at)
	}
	if s.identified {
		h.Pod.UID = ""
	}
}

// commit makes a step last: the slot gets its deadline and its place in the journal. A
// renewal only ever puts a deadline off, and none at all is later than any.
func (l *account) commit(s *step) {
	h := s.hold
	later := !s.fresh && !h.Deadline.IsZero() && (s.deadline.IsZero() || nanos(s.deadline) > h.expiry.at)
	if later {
		h.Deadline = s.deadline
	}
	if s.fresh || later {
		l.setExpiry(h)
	}
	if s.identified {
		l.recordHold(HoldIdentified, h, h.Pod)
	}
	if s.fresh || later || s.resized {
		l.recordHold(HoldPlaced, h, h.Pod)
	}
}

// Unreserve gives back what is kept for pods in memory. Of each placement only the pod
// and, where not empty, the node and the scheduler count: they must be those of the slot.
// A pod without one is a success, so that a repeat is one. Pods that are bound, or being
// bound, are refused: only their deletion frees what they have.
func (l *Ledger) Unreserve(placements []Placement) Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	var result Result
	for k := range placements {
		p := &placements[k]
		on, scheduler, reason := "", "", Fits
		c, g := l.lookup(p.Pod), (*hold)(nil)
		if c != nil {
			on, scheduler, reason = l.nodes[c.node].name, c.scheduler, BindInFlight
		} else if g = l.inMemory(p.Pod); g != nil {
			on, scheduler = g.Node, g.Scheduler
		}
		switch {
		case c == nil && g == nil:
		case p.Node != "" && on != p.Node:
			reason = ClaimedElsewhere
		case p.Scheduler != "" && scheduler != "" && scheduler != p.Scheduler:
			reason = NotOwner
		case g != nil:
			l.endHold(g, HoldReleased, PodRef{})
		}
		if reason == Fits {
			result.Granted++
			continue
		}
		r := l.reject(p, Verdict{Reason: reason}, nil)
		r.ClaimedOn = on
		result.Rejections = append(result.Rejections, *r)
	}
	result.Revision = l.revision
	return result
}
