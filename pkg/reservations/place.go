package reservations

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// Pending reservations are gone through at most every placePause, and for no
// more than a fifth of the time: in a busy cluster capacity is freed all the time.
const (
	placePause = 100 * time.Millisecond
	placeRest  = 4
	// placeAgain is after how long they are gone through if nothing says that
	// capacity was freed: an allocation may get smaller without an event of that.
	placeAgain = 10 * time.Second
)

// placeLoop places pending reservations when something may fit that did not.
func (c *Controller) placeLoop(ctx context.Context) {
	if c.ready.Wait(ctx) != nil || c.MayDecide(ctx) != nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
		case <-time.After(placeAgain):
		}
		begun := c.now()
		c.placeAll(ctx)
		if !follow.Pause(ctx, max(placePause, placeRest*c.now().Sub(begun))) {
			return
		}
	}
}

// placeAll tries every pending reservation once: the highest priority first, and
// among equals the oldest.
func (c *Controller) placeAll(ctx context.Context) {
	waiting := c.attempts()
	if len(waiting) == 0 {
		return
	}
	free := c.Ledger.Survey()
	for _, a := range waiting {
		if ctx.Err() != nil {
			return
		}
		c.place(a, free)
	}
}

// attempt is one try to place a reservation.
type attempt struct {
	*record
	rsv      *v1alpha1.Reservation // the record's when the attempt began
	priority int32
}

// attempts returns the pending reservations in order.
func (c *Controller) attempts() []attempt {
	c.mu.Lock()
	list := make([]attempt, 0, len(c.waiting))
	for _, r := range c.waiting {
		list = append(list, attempt{record: r, rsv: r.rsv})
	}
	c.mu.Unlock()
	for i := range list {
		list[i].priority = c.priority(list[i].rsv)
	}
	slices.SortFunc(list, func(a, b attempt) int {
		return cmp.Or(
			cmp.Compare(b.priority, a.priority), a.rsv.CreationTimestamp.Compare(b.rsv.CreationTimestamp.Time),
			cmp.Compare(a.rsv.Namespace, b.rsv.Namespace), cmp.Compare(a.rsv.Name, b.rsv.Name))
	})
	return list
}

// placement is what an attempt asks the ledger for.
type placement struct {
	kept        []ledger.Slot
	nodes       []where
	availableAt time.Time
	deadline    time.Time
}

// choiceRounds is how often nodes are chosen anew because capacity went meanwhile.
const choiceRounds = 3

// place tries one reservation.
func (c *Controller) place(a attempt, free *ledger.Survey) {
	if !c.startPlacing(a) {
		return
	}
	var (
		p            *placement
		why          *cause
		final, again bool
	)
	for range choiceRounds {
		taken := free.Taken()
		p, why, final, again = c.ask(a, free)
		if why != nil {
			free.Undo(taken)
		}
		if !again {
			break
		}
		*free = *c.Ledger.Survey()
	}
	c.endPlacing(a, p, why, final)
}

// startPlacing prepares the record for holds that end before it knows of them.
// It reports false where there is nothing to place any more.
func (c *Controller) startPlacing(a attempt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.CatchUp()
	if c.waiting[a.key()] != a.record {
		return false
	}
	a.placing = true
	clear(a.slots)
	return true
}

// ask chooses nodes and asks the ledger. again says that a chosen node lost its
// capacity meanwhile; final, that asking again can never help.
func (c *Controller) ask(a attempt, free *ledger.Survey) (p *placement, why *cause, final, again bool) {
	kept, err := convert.Slots(c.Ledger.Table(), a.rsv)
	if err != nil {
		return nil, &cause{reasonInvalidSpec, err.Error()}, true, false
	}
	ttl, err := c.ttl(a.rsv)
	if err != nil {
		return nil, &cause{reasonTTLTooLong, err.Error()}, true, false
	}
	now := c.now()
	p = &placement{kept: kept, availableAt: convert.DeadlineAfter(now, 0)}
	if convert.MadeByServer(a.rsv) {
		p.availableAt = a.rsv.CreationTimestamp.Time
	}
	if ttl > 0 {
		p.deadline = convert.DeadlineAfter(p.availableAt, ttl)
		if !p.deadline.After(now) {
			return nil, &cause{string(v1alpha1.ReservationExpired), "the ttl was over before there was capacity"}, true, false
		}
	}
	for i := range kept {
		kept[i].Priority, kept[i].Deadline = a.priority, p.deadline
	}
	if why := c.choose(free, kept, a.rsv.Spec.Slots); why != nil {
		return nil, why, false, false
	}
	for i := range kept {
		node, _ := c.Node(kept[i].Node)
		p.nodes = append(p.nodes, where{kept[i].Node, node.UID})
	}
	result, err := c.Ledger.Reserve(ledger.Plan{Slots: kept, Mode: ledger.AllOrNothing}, now, false)
	if err != nil {
		return nil, &cause{reasonNotGranted, err.Error()}, false, false
	}
	if len(result.Rejections) > 0 {
		why, final, again = refusal(result.Rejections, a.rsv.Spec.Slots, kept)
		return nil, why, final, again
	}
	if why := elsewhere(kept, result.Existing); why != nil {
		var made []string
		for i := range kept {
			if _, existed := result.Existing[i]; !existed {
				made = append(made, kept[i].Ref.Slot)
			}
		}
		if len(made) > 0 {
			c.Ledger.ReleaseSlots(a.rsv.Namespace, a.rsv.Name, made...)
		}
		return nil, why, false, false
	}
	return p, nil, false, false
}

// refusal puts the ledger's answer in words.
func refusal(rejections []ledger.Rejection, slots []v1alpha1.Slot, kept []ledger.Slot) (why *cause, final, again bool) {
	first := &rejections[0]
	why = &cause{first.Reason.String(), first.Message()}
	if more := len(rejections) - 1; more > 0 {
		why.message += fmt.Sprintf(" (and %d more slots do not fit)", more)
	}
	for k := range rejections {
		r := &rejections[k]
		final = final || r.Reason == ledger.PodGone
		i := slices.IndexFunc(kept, func(h ledger.Slot) bool { return h.Ref == r.Slot })
		again = again || (i >= 0 && slots[i].NodeName == "")
	}
	return why, final, again && !final
}

// elsewhere tells which pod of the reservation has a slot of another one.
func elsewhere(kept []ledger.Slot, existing map[int]ledger.SlotRef) *cause {
	for i, ref := range existing {
		if ref != kept[i].Ref {
			return &cause{reasonReservedAlready, fmt.Sprintf("pod %s has its capacity in reservation %s already", kept[i].Pod, ref)}
		}
	}
	return nil
}

// endPlacing records what came of an attempt.
func (c *Controller) endPlacing(a attempt, p *placement, why *cause, final bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.CatchUp()
	r := a.record
	r.placing = false
	granted := why == nil
	if c.waiting[r.key()] != r { // deleted meanwhile
		if granted {
			c.releasePlaced(p)
		}
		return
	}
	switch {
	case granted:
		c.grant(r, p)
	case final:
		c.refuse(r, *why)
	default:
		r.waits(*why, c.now())
	}
	c.queue.Add(r.key())
}

func (c *Controller) releasePlaced(p *placement) {
	ref := p.kept[0].Ref
	slots := make([]string, 0, len(p.kept))
	for i := range p.kept {
		slots = append(slots, p.kept[i].Ref.Slot)
	}
	c.Ledger.ReleaseSlots(ref.Namespace, ref.Name, slots...)
}

// grant makes a pending reservation available. c.mu is held.
func (c *Controller) grant(r *record, p *placement) {
	r.granted(p.nodes, p.availableAt, p.deadline, c.now())
	for i := range r.slots {
		r.slots[i].held = true
	}
	c.settled(r)
	c.tell(r, string(v1alpha1.ReservationAvailable), "Reserve", fmt.Sprintf("%d slots are held on %s", len(r.slots), r.status.NodeName))
	c.loseNodesOf(r)
	c.applyTTL(r)
}

// refuse ends a reservation that holds nothing and never will. c.mu is held.
func (c *Controller) refuse(r *record, why cause) {
	r.finish(v1alpha1.ReservationFailed, why, c.now())
	c.settled(r)
	c.tell(r, why.reason, "End", why.message)
}
