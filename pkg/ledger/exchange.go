package ledger

import (
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Exchange is what happens beside a bind, in the same step; see StartBindWith.
type Exchange struct {
	// GiveUp are pods whose movable slots end; what somebody reserved for them stays.
	GiveUp []PodRef
	// Keep are the slots in memory that are made. None is made for the pod that is bound.
	Keep []Choice
}

// Choice asks for slots for pods that ask for the same, each on the first of some nodes that has capacity
// for it beside the others.
type Choice struct {
	// Slots are in memory. Node is filled in; where it is set before, a slot of a reservation there comes first.
	Slots []Slot
	Nodes []string
}

// isMixed reports whether what is kept asks for different amounts.
func (x *Exchange) isMixed() bool {
	var first *resources.Request
	for k := range x.Keep {
		switch slots := x.Keep[k].Slots; {
		case len(slots) == 0:
		case first == nil:
			first = slots[0].Request
		case !first.Equal(slots[0].Request):
			return true
		}
	}
	return false
}

// StartBindWith is StartBind, and in the same step gives up some slots and makes others: all of it is done or nothing.
// What is given up is free for the pod and for the slots that are made. No slots are preempted. A rejection with the
// reason GangUnplaced says that the pod would fit, but not all that is to be kept: Requested is how many slots that is,
// and Free for how many there is capacity.
func (l *Ledger) StartBindWith(p *Placement, x *Exchange, now time.Time) (Grant, *Rejection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireFor(p, now)
	if own := l.find(p.Pod); own != nil && own.isAllocation() {
		return l.startBind(p)
	}
	steps, rejection := l.exchange(p, x)
	if rejection != nil {
		return Grant{}, rejection
	}
	grant := l.turnStep(&steps[0], p)
	l.commitAll(steps)
	return grant, nil
}

// Exchange is StartBindWith without a bind. The rejection of GangUnplaced names no pod.
func (l *Ledger) Exchange(x *Exchange, now time.Time) *Rejection {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	steps, rejection := l.exchange(nil, x)
	l.commitAll(steps)
	return rejection
}

// exchange gives up slots for good if all that is asked for can be had for them, or does nothing. Its caller commits
// the steps.
func (l *account) exchange(p *Placement, x *Exchange) ([]step, *Rejection) {
	given, steps, rejection := l.tryExchange(p, x)
	if rejection != nil {
		l.revertExchange(given, steps)
		return nil, rejection
	}
	for _, e := range given {
		l.endDetached(e, SlotReleased, PodRef{})
	}
	return steps, nil
}

// Exchange is what Ledger.Exchange would say. What it makes, and gives up, stays so for the questions that follow.
func (t *Trial) Exchange(x *Exchange) *Rejection {
	given, steps, rejection := t.tryExchange(nil, x)
	t.undo = append(t.undo, func() { t.revertExchange(given, steps) })
	return rejection
}

func (l *account) revertExchange(given []*entry, steps []step) {
	l.undoAll(steps)
	for _, e := range slices.Backward(given) {
		l.putBack(e)
	}
}

// commitAll makes steps last, but for that of a pod that is bound: nothing is kept for it.
func (l *account) commitAll(steps []step) {
	for k := range steps {
		if !steps[k].slot.isAllocation() {
			l.commit(&steps[k])
		}
	}
}

// BindFailedKeeping is BindFailed, and in the same step makes a movable slot of what the bind had, until a deadline.
// Nothing is kept on a node that is gone.
func (l *Ledger) BindFailedKeeping(pod PodRef, nodeName string, deadline time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.allocationOf(pod)
	if c == nil || c.state != Binding || l.names[c.node] != nodeName {
		return false
	}
	spec := Slot{
		Node: nodeName, Request: c.request.Kept(), Scheduler: c.scheduler, Caller: c.caller, Priority: c.priority, Pod: c.pod,
		Movable: true, Deadline: deadline,
	}
	i, within, devices := c.node, c.within, c.devices.withoutCounted()
	l.drop(c)
	l.record(AllocationBindFailed, c, c.pod)
	l.recycle(c)
	if l.flags[i]&nodeKnown != 0 && l.find(spec.Pod) == nil { // what was made for its name alone may be its own
		e := l.addSlot(&spec, i, within, devices)
		l.schedule(e)
		l.record(SlotPlaced, e, e.pod)
	}
	if within != nil {
		l.settle(within, nil)
	}
	l.dropIfEmpty(i)
	return true
}

// PutOff puts off the deadlines of slots in memory, where that is later.
func (l *Ledger) PutOff(pods []PodRef, deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := deadlineOf(deadline)
	for _, pod := range pods {
		if e := l.find(pod); e != nil && e.inMemory() && e.deadline < at {
			e.deadline = at
			l.schedule(e)
			l.record(SlotPlaced, e, e.pod)
		}
	}
}

// setAllAside sets aside the movable slots of pods, and returns them.
func (l *account) setAllAside(pods []PodRef) (given []*entry) {
	for _, pod := range pods {
		if e := l.find(pod); e != nil && e.movable {
			l.setAside(e)
			given = append(given, e)
		}
	}
	return given
}

// tryExchange sets aside what is given up. It makes a slot for the pod that is bound, if there is one, as the first of
// the steps, and the slots that are to be kept, without events.
func (l *account) tryExchange(p *Placement, x *Exchange) (given []*entry, steps []step, rejection *Rejection) {
	l.remember()
	defer l.forgetBefore()
	given = l.setAllAside(x.GiveUp)
	wanted, placed := 0, 0
	for k := range x.Keep {
		wanted += len(x.Keep[k].Slots)
	}
	steps = make([]step, 0, 1+wanted)
	short := &Rejection{Reason: GangUnplaced, Requested: int64(wanted)}
	if p != nil {
		s, rejection := l.tryBound(p)
		if rejection != nil {
			return given, nil, rejection
		}
		s.binds = true
		steps = append(steps, s)
		short.Pod, short.Node = p.Pod, p.Node
	}
	mixed := x.isMixed()
	for k := range x.Keep {
		var n int
		if steps, n, rejection = l.tryChoice(steps, &x.Keep[k], mixed); rejection != nil {
			return given, steps, rejection
		}
		placed += n
	}
	if placed < wanted {
		short.Free, short.Detail = int64(placed), l.byDRAOnly(x)
		return given, steps, short
	}
	return given, steps, nil
}

// tryBound makes a slot for a pod that is to be bound. A slot that is kept for the pod on the node already is used, no
// matter who reserved it. tryBound grants what startBind would.
func (l *account) tryBound(p *Placement) (step, *Rejection) {
	spec := p.Slot(time.Time{})
	spec.binds = true
	own := l.find(p.Pod)
	switch {
	case own == nil:
		return l.makeSlot(&spec, p)
	case l.names[own.node] != p.Node && own.movable:
		return l.replaceSlot(own, &spec, p)
	case l.names[own.node] != p.Node:
		return step{}, l.rejectElsewhere(p, own)
	}
	l.detach(own)
	defer l.attach(own)
	if v := l.fitInPlace(own, p); v.Reason != Fits {
		return step{}, l.reject(p, v, own)
	}
	s := step{slot: own, was: own.request, had: own.devices, pinned: own.movable}
	own.request, own.devices, own.movable = p.Request, l.allotInPlace(own, p.Devices), false
	s.identified = l.identify(own, p.Pod.UID)
	return s, nil
}

// tryChoice makes as many slots as there is capacity for, first within the slots of reservations: what those keep would
// be taken twice over otherwise. In a mixed lot a slot that is too large for these may be for others: it is no better
// than other places then. A rejection says that a limit is reached, which is the same on all nodes.
func (l *account) tryChoice(steps []step, c *Choice, mixed bool) (_ []step, placed int, rejection *Rejection) {
	usable := l.byNode(c)
	if len(usable) > 0 {
		suits := func(h *entry) bool { return h != nil && (!mixed || h.keepsJust(c.Slots[0].Request)) }
		for k := range c.Slots {
			if c.Slots[k].Node == "" {
				continue
			}
			var n int
			there := &Choice{Slots: c.Slots[k : k+1], Nodes: []string{c.Slots[k].Node}}
			if steps, n, rejection = l.tryNodes(steps, there, 0, usable, suits); rejection != nil {
				return steps, placed, rejection
			} else if n > 0 {
				c.Slots[placed], c.Slots[k] = c.Slots[k], c.Slots[placed]
				placed++
			}
		}
		if steps, placed, rejection = l.tryNodes(steps, c, placed, usable, suits); rejection != nil {
			return steps, placed, rejection
		}
	}
	return l.tryNodes(steps, c, placed, usable, nil)
}

// tryNodes is tryChoice for those slots of a choice that are not placed yet: anywhere, or, unless suits is nil, only
// within slots of reservations that suit.
func (l *account) tryNodes(steps []step, c *Choice, placed int, usable map[int32][]SlotRef, suits func(*entry) bool) (
	_ []step, _ int, rejection *Rejection,
) {
	for _, name := range c.Nodes {
		i, known := l.nodeIndex[name]
		known = known && (suits == nil || len(usable[i]) > 0)
		for known && placed < len(c.Slots) {
			spec := &c.Slots[placed]
			if len(steps) > 0 && steps[0].binds && l.find(spec.Pod) == steps[0].slot {
				if l.identify(steps[0].slot, spec.Pod.UID) {
					steps[0].identified = !steps[0].fresh
				}
				placed++ // it has what it is being bound with
				continue
			}
			spec.Node = name
			p := spec.Placement()
			p.Slots = usable[i]
			m := l.limiterOf(&p, p.Caller)
			h, v := l.fitAny(i, &p, l.candidates(&p), &m)
			if (suits != nil && !suits(h)) || (v.Reason != Fits && !v.Reason.OfLimit()) {
				break // nor would another one of the same
			}
			s, rejection := l.tryMemory(spec, &p)
			if rejection != nil {
				return steps, placed, rejection
			}
			if s.slot != nil {
				steps = append(steps, s)
			}
			placed++
		}
	}
	return steps, placed, nil
}

// byNode returns the slots of reservations that those of a choice may be made within, by the nodes they are on.
func (l *account) byNode(c *Choice) map[int32][]SlotRef {
	if len(c.Slots) == 0 || len(c.Slots[0].Slots) == 0 {
		return nil
	}
	on := map[int32][]SlotRef{}
	for _, ref := range c.Slots[0].Slots {
		if h := l.slots[ref]; h != nil {
			on[h.node] = append(on[h.node], ref)
		}
	}
	return on
}

// turnStep makes the slot of a step the allocation of its pod.
func (l *account) turnStep(s *step, p *Placement) Grant {
	e := s.slot
	if s.from != nil {
		l.endDetached(s.from, SlotReleased, PodRef{})
	}
	if s.identified {
		l.record(SlotIdentified, e, e.pod)
	}
	l.detach(e)
	l.turn(e, p)
	e.devices = l.giveCounted(e.node, p.Request, e.devices, e.within)
	l.attach(e)
	l.record(AllocationBinding, e, e.pod)
	return Grant{Slot: e.within.ref(), Caller: e.caller, Devices: e.given()}
}
