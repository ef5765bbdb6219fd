package ledger

import (
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Reserve decides a plan in one step. What has expired at now is given back first. In mode AllOrNothing nothing is kept
// unless everything is; the rejections then still name every slot that has no capacity next to the others.
//
// A slot for a pod that has capacity already is the same success. One in memory is renewed: its deadline is put off,
// and it is resized where that fits, unless it is another caller's. The same slot of a reservation again on the same
// node, of the same size and for the same pod, is there already, and so is another one for a pod that has one of that
// size there; their deadlines stay as they are. An overdue slot is none of these.
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

// tryPlan decides a plan and makes its slots, without events. Nothing is left of a plan that is refused.
func (l *account) tryPlan(steps []step, plan *Plan) ([]step, Result) {
	steps, result := l.trySlots(steps, plan.Slots)
	if len(result.Rejections) > 0 && plan.Mode != Partial {
		l.undoAll(steps)
		steps, result.Granted, result.Existing, result.Held = nil, 0, nil, nil
		lacksDevices := func(r Rejection) bool { return r.Reason == InsufficientDevices }
		if slices.ContainsFunc(result.Rejections, lacksDevices) {
			if again, better := l.trySlots(nil, l.shareOut(plan.Slots)); len(better.Rejections) == 0 && better.Granted > 0 {
				steps, result = again, better
			} else {
				l.undoAll(again)
			}
		}
	}
	result.Revision = l.revision
	return steps, result
}

// trySlots makes slots, without events. It appends what it did to steps.
func (l *account) trySlots(steps []step, slots []Slot) ([]step, Result) {
	var result Result
	if len(slots) > cap(steps) {
		steps = make([]step, 0, len(slots))
	}
	for k := range slots {
		s, existing, rejection := l.trySlot(&slots[k])
		switch {
		case rejection != nil:
			result.Rejections = append(result.Rejections, *rejection)
			continue
		case existing != nil:
			if result.Existing == nil {
				result.Existing = map[int]SlotRef{}
			}
			result.Existing[k] = existing.ref()
		case s.slot != nil:
			steps = append(steps, s)
		}
		if existing == nil && (!s.fresh || s.from != nil) {
			if result.Held == nil {
				result.Held = map[int]bool{}
			}
			result.Held[k] = true
		}
		result.Granted++
	}
	return steps, result
}

// step is one slot of a plan that was made, or renewed, and can still be undone.
type step struct {
	slot       *entry
	fresh      bool               // the plan made it
	binds      bool               // its pod is being bound with it
	identified bool               // it got its pod's UID
	from       *entry             // the movable slot that it replaced
	pinned     bool               // it was movable before
	was        *resources.Request // the size it had before, if that was another
	had        *deviceGrant
	deadline   int64 // what was asked for
}

// trySlot makes one slot, without events, or finds the one that is there
// already. A step without a slot means that the pod needs none.
func (l *account) trySlot(spec *Slot) (s step, existing *entry, rejection *Rejection) {
	p := spec.Placement()
	if spec.InMemory() {
		s, rejection = l.tryMemory(spec, &p)
		return s, nil, rejection
	}
	if existing, rejection = l.findSlot(spec, &p); existing != nil || rejection != nil {
		return step{}, existing, rejection
	}
	i, ok := l.nodeIndex[spec.Node]
	v := Verdict{Reason: NodeUnknown}
	if ok {
		v = l.fitSlot(i, &p)
	}
	if v.Reason != Fits {
		return step{}, nil, l.rejectSlot(spec, &p, v, nil)
	}
	return step{slot: l.addSlot(spec, i, nil, l.allotSlot(i, spec, nil)), fresh: true}, nil, nil
}

// Placement returns what the slot asks for, as its pod would.
func (h *Slot) Placement() Placement {
	return Placement{
		Pod: h.Pod, Node: h.Node, Request: h.Request, Scheduler: h.Scheduler, Caller: h.Caller, Priority: h.Priority,
		Slots: h.Slots, Devices: h.Devices, slotNamespace: h.Ref.Namespace,
		NoDRA: h.NoDRA || !h.InMemory(),
	}
}

// rejectSlot refuses a slot of a reservation; other is what is in the way, or nil.
func (l *account) rejectSlot(spec *Slot, p *Placement, v Verdict, other *entry) *Rejection {
	r := l.reject(p, v, nil)
	r.Slot = spec.Ref
	if other != nil {
		r.AllocatedOn = l.names[other.node]
	}
	return r
}

// findSlot finds the slot of a reservation that is there already, or what is in the way
// of it other than lack of capacity.
func (l *account) findSlot(spec *Slot, p *Placement) (existing *entry, rejection *Rejection) {
	refuse := func(reason Reason, other *entry) (*entry, *Rejection) {
		return nil, l.rejectSlot(spec, p, Verdict{Reason: reason}, other)
	}
	if h := l.slots[spec.Ref]; h != nil {
		if l.keepsFor(h, spec) && !h.overdue && !h.away {
			return h, nil
		}
		_, rejection = refuse(SlotExists, h)
		if spec.Pod.Name != "" && h.isFor(spec.Pod) && !l.keepsFor(h, spec) { // it asks for something else by now
			rejection.Holders = []Holder{h.holder(1)}
		}
		return nil, rejection
	}
	if spec.Pod.Name == "" {
		return nil, nil
	}
	if l.gone.has(spec.Pod.UID) {
		return refuse(PodGone, nil)
	}
	own, h := l.find(spec.Pod), l.durableFor(spec.Pod)
	switch {
	case own != nil && own.isAllocation():
		return refuse(PodAllocated, own)
	case h != nil && l.keepsFor(h, spec):
		return h, nil
	case h != nil && l.names[h.node] != spec.Node:
		return refuse(AllocatedElsewhere, h)
	case h == nil && own == nil:
		return nil, nil
	case h == nil:
		h = own
	}
	_, rejection = refuse(SlotExists, h)
	rejection.Holders = []Holder{h.holder(1)}
	return nil, rejection
}

// keepsFor reports whether a slot keeps the same capacity for the same pods.
func (l *account) keepsFor(h *entry, spec *Slot) bool {
	samePod := spec.Pod.Name == h.pod.Name && (h.pod.Name == "" || h.isFor(spec.Pod))
	return samePod && l.names[h.node] == spec.Node && h.request.Equal(spec.Request) && spec.Devices.matches(h.asks())
}

// tryMemory makes or renews a slot in memory. For a pod that has an allocation there is nothing to keep.
func (l *account) tryMemory(spec *Slot, p *Placement) (step, *Rejection) {
	own := l.find(spec.Pod)
	kept := own
	if own == nil {
		kept = l.durableFor(spec.Pod)
	}
	switch {
	case kept != nil && l.names[kept.node] != spec.Node && kept.movable:
		return l.replaceSlot(kept, spec, p)
	case kept != nil && l.names[kept.node] != spec.Node:
		return step{}, l.rejectElsewhere(p, kept)
	case own != nil && own.isAllocation():
		return step{}, nil
	case own != nil && !own.movable && !own.mayTouch(spec.Caller):
		return step{}, l.rejectSlot(&Slot{}, p, Verdict{Reason: NotOwner}, own)
	case own != nil:
		return l.renew(own, spec, p)
	}
	return l.makeSlot(spec, p)
}

// replaceSlot makes a slot in memory for a pod in place of its movable one on another node.
func (l *account) replaceSlot(from *entry, spec *Slot, p *Placement) (step, *Rejection) {
	if at := from.named(p); at != p {
		own := *spec
		own.Pod = at.Pod
		spec, p = &own, at
	}
	l.setAside(from)
	s, rejection := l.makeSlot(spec, p)
	if rejection != nil {
		l.putBack(from)
		rejection.AllocatedOn = l.names[from.node]
		return step{}, rejection
	}
	s.from = from
	return s, nil
}

// makeSlot makes a slot in memory for a pod that has none.
func (l *account) makeSlot(spec *Slot, p *Placement) (step, *Rejection) {
	i, within, rejection := l.admit(p)
	if rejection == nil && !spec.binds {
		m := l.limiterOf(p, p.Caller)
		if v := m.keep(p.Request, within, nil); v.Reason != Fits {
			rejection = l.reject(p, v, nil)
		}
	}
	if rejection != nil {
		return step{}, rejection
	}
	return step{slot: l.addSlot(spec, i, within, l.allotSlot(i, spec, within)), fresh: true}, nil
}

func (l *account) rejectElsewhere(p *Placement, other *entry) *Rejection {
	return l.rejectSlot(&Slot{}, p, Verdict{Reason: AllocatedElsewhere}, other)
}

// renew grants a slot in memory to a pod that has one on the same node: that is the same
// success, as long as another size still fits.
func (l *account) renew(e *entry, spec *Slot, p *Placement) (step, *Rejection) {
	s := step{slot: e, deadline: deadlineOf(spec.Deadline)}
	if !e.request.Equal(spec.Request) || !spec.Devices.Same(e.asks()) {
		l.detach(e)
		v := l.fitInPlace(e, p)
		if v.Reason == Fits {
			m := l.limiterOf(p, e.caller)
			v = m.keep(p.Request, e.within, e)
		}
		if v.Reason != Fits {
			rejection := l.reject(p, v, e)
			l.attach(e)
			return step{}, rejection
		}
		s.was, s.had = e.request, e.devices
		e.request, e.devices = spec.Request, l.allotInPlace(e, spec.Devices)
		l.attach(e)
	}
	s.identified = l.identify(e, spec.Pod.UID)
	if s.pinned = e.movable && !spec.Movable; s.pinned {
		e.movable = false
	}
	return s, nil
}

// admit finds capacity on the node of a placement for a pod that has nothing yet: in a
// slot it may use, or else in the node's free capacity.
func (l *account) admit(p *Placement) (int32, *entry, *Rejection) {
	i, known := l.nodeIndex[p.Node]
	var h *entry
	v := Verdict{Reason: NodeUnknown}
	switch {
	case l.gone.has(p.Pod.UID):
		v.Reason = PodGone
	case known:
		m := l.limiterOf(p, p.Caller)
		h, v = l.fitAny(i, p, l.candidates(p), &m)
	}
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
	e := s.slot
	if s.fresh {
		l.drop(e)
		l.recycle(e)
		if s.from != nil {
			l.putBack(s.from)
		}
		return
	}
	if s.was != nil {
		l.detach(e)
		e.request, e.devices = s.was, s.had
		l.attach(e)
	}
	if s.identified {
		e.pod.UID = ""
	}
	e.movable = e.movable || s.pinned
}

// commit makes a step last: the slot gets its deadline and its place in the journal. A
// renewal only ever puts a deadline off; to have none counts as later than any.
func (l *account) commit(s *step) {
	e := s.slot
	later := !s.fresh && s.deadline > e.deadline
	if s.from != nil {
		l.endDetached(s.from, SlotReleased, PodRef{})
	}
	if later {
		e.deadline = s.deadline
	}
	if s.fresh || later {
		l.schedule(e)
	}
	if s.identified {
		l.record(SlotIdentified, e, e.pod)
	}
	if s.fresh || later || s.pinned || s.was != nil {
		l.record(SlotPlaced, e, e.pod)
	}
}

// Unreserve gives back what is kept for pods in memory. Of each placement only the pod and, where not empty, the node,
// the scheduler and the caller count: they must be those of the slot. A pod without a slot is a success, so that a
// repeat succeeds. Pods that are bound, or being bound, are refused: only their deletion frees what they have.
func (l *Ledger) Unreserve(placements []Placement) Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	var result Result
	for k := range placements {
		p := &placements[k]
		own, reason := l.find(p.Pod), Fits
		switch {
		case own == nil:
		case p.Node != "" && l.names[own.node] != p.Node:
			reason = AllocatedElsewhere
		case p.Scheduler != "" && own.scheduler != "" && own.scheduler != p.Scheduler:
			reason = NotOwner
		case own.isAllocation():
			reason = BindInFlight
		case !own.mayTouch(p.Caller):
			reason = NotOwner
		default:
			l.endSlot(own, SlotReleased, PodRef{})
		}
		if reason == Fits {
			result.Granted++
		} else {
			result.Rejections = append(result.Rejections, *l.rejectSlot(&Slot{}, p, Verdict{Reason: reason}, own))
		}
	}
	result.Revision = l.revision
	return result
}
