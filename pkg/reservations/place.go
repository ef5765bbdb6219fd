package reservations

import (
	"fmt"
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// proposal is what an attempt asks the ledger for.
type proposal struct {
	kept  []ledger.Slot
	slots []v1alpha1.SlotStatus // with their nodes
	// availableAt and expiresAt are for the object, deadline is expiresAt for the ledger.
	availableAt, expiresAt, deadline time.Time
}

// choiceRounds is how often nodes are chosen anew because capacity went meanwhile.
const choiceRounds = 3

// place tries one reservation.
func (c *Controller) place(a attempt, free *ledger.Survey) {
	if !c.startPlacing(&a) {
		return
	}
	var p *proposal
	var no *refused
	for range choiceRounds {
		taken := free.Taken()
		if p, no = c.ask(a, free); no == nil {
			c.giveWayToPods(p.kept)
			break
		}
		free.Undo(taken)
		if !no.again {
			break
		}
		*free = *c.Ledger.Survey()
	}
	c.endPlacing(a, p, no)
}

// refused is why an attempt came to nothing. again says that a node that was chosen lost its capacity meanwhile;
// final, that asking again can never help. asked is the slot that there is no capacity for, lacks what
// it asks for, and said what the ledger has said of it, or nil where no node was chosen for it.
type refused struct {
	cause
	final, again bool
	asked        *ledger.Slot
	slot         *v1alpha1.Slot
	said         *ledger.Rejection
	lacks        []ledger.Lack
	barred       bool // by a gate
}

// toPlace reports whether an object is there and pending. c.mu is held.
func (c *Controller) toPlace(r *record) bool { return c.records[r.key()] == r && r.pending() }

// startPlacing prepares the record for slots that end before it knows of them.
// It reports false where there is nothing to place any more.
func (c *Controller) startPlacing(a *attempt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.CatchUp()
	if !c.toPlace(a.record) {
		return false
	}
	if a.back = givenBack(&a.status); len(a.back) == len(a.slots) {
		_, why := a.outcome()
		c.refuse(a.record, why)
		c.queue.Add(a.key())
		return false
	}
	now := c.now()
	a.placing, a.missed, a.tried, a.freed, a.until = true, false, now, a.asOf, now.Add(attemptMost)
	clear(a.slots)
	return true
}

// ask chooses nodes and asks the ledger.
func (c *Controller) ask(a attempt, free *ledger.Survey) (p *proposal, no *refused) {
	kept, ttl, why := c.wanted(a.rsv)
	if why != nil {
		return nil, &refused{cause: *why, final: true}
	}
	kept = slices.DeleteFunc(kept, func(h ledger.Slot) bool { return a.back[h.Ref.Slot] })
	asked := slices.DeleteFunc(slices.Clone(a.rsv.Spec.Slots), func(s v1alpha1.Slot) bool { return a.back[s.Name] })
	now := c.wall()
	p = &proposal{kept: kept, availableAt: convert.DeadlineAfter(now, 0)}
	if convert.MadeByServer(a.rsv) {
		p.availableAt = a.rsv.CreationTimestamp.Time
	}
	if ttl > 0 {
		p.expiresAt = convert.DeadlineAfter(p.availableAt, ttl)
		if !p.expiresAt.After(now) {
			return nil, &refused{
				cause: cause{string(v1alpha1.ReservationExpired), "the ttl was over before there was capacity"},
				final: true,
			}
		}
		p.deadline = c.Ledger.Clock.At(p.expiresAt)
	}
	for i := range kept {
		kept[i].Priority, kept[i].AvailableAt, kept[i].Deadline = a.priority, p.availableAt, p.deadline
	}
	for i := range kept {
		if err := c.Ledger.RefuseSlot(&kept[i]); err != nil { // before the search for nodes: this reason counts first
			return nil, &refused{cause: cause{reasonNotGranted, err.Error()}, asked: &kept[i], barred: true}
		}
	}
	if over := c.Ledger.KeptOverLimit(kept); over != nil { // nodes need not be looked at, and new ones would be of no use
		return nil, refusal([]ledger.Rejection{*over}, asked, kept)
	}
	if no := c.choose(free, kept, asked, a.until); no != nil {
		return nil, no
	}
	p.slots = c.placed(a, kept)
	result, err := c.Ledger.Reserve(ledger.Plan{Slots: kept, Mode: ledger.AllOrNothing}, false)
	if err != nil {
		return nil, &refused{cause: cause{reasonNotGranted, err.Error()}}
	}
	if len(result.Rejections) > 0 {
		return nil, refusal(result.Rejections, asked, kept)
	}
	if why := elsewhere(kept, result.Existing); why != nil {
		c.releaseSlots(kept, result.Existing)
		return nil, &refused{cause: *why}
	}
	return p, nil
}

// placed returns where slots are, and which were given back before.
func (c *Controller) placed(a attempt, kept []ledger.Slot) []v1alpha1.SlotStatus {
	slots := make([]v1alpha1.SlotStatus, len(a.rsv.Spec.Slots))
	for i := range slots {
		if a.back[a.rsv.Spec.Slots[i].Name] {
			slots[i].State = v1alpha1.SlotReleased
			continue
		}
		slots[i].NodeName = kept[0].Node
		if node, ok := c.Nodes.Node(kept[0].Node); ok { // else the ledger refuses, or soon reports its end
			slots[i].NodeUID = node.UID
		}
		kept = kept[1:]
	}
	return slots
}

// refusal puts the ledger's answer in words.
func refusal(rejections []ledger.Rejection, slots []v1alpha1.Slot, kept []ledger.Slot) *refused {
	first := &rejections[0]
	no := &refused{cause: cause{first.Reason.String(), first.Message()}, said: first, lacks: lacksThere(first)}
	if i := slices.IndexFunc(kept, func(h ledger.Slot) bool { return h.Ref == first.Slot }); i >= 0 {
		no.asked = &kept[i]
	}
	if more := len(rejections) - 1; more > 0 {
		no.message += fmt.Sprintf(" (and %d more slots do not fit)", more)
	}
	for k := range rejections {
		r := &rejections[k]
		no.final = no.final || r.Reason == ledger.PodGone
		i := slices.IndexFunc(kept, func(h ledger.Slot) bool { return h.Ref == r.Slot })
		no.again = no.again || (i >= 0 && slots[i].NodeName == "" && !r.Reason.OfLimit())
	}
	no.again = no.again && !no.final
	return no
}

// elsewhere returns which pod of the reservation has a slot of another one, nil where none has.
func elsewhere(kept []ledger.Slot, existing map[int]ledger.SlotRef) *cause {
	for i, ref := range existing {
		if ref != kept[i].Ref {
			return &cause{reasonReservedAlready, fmt.Sprintf("pod %s has its capacity in reservation %s already", kept[i].Pod,
				ref)}
		}
	}
	return nil
}

// endPlacing records what came of an attempt.
func (c *Controller) endPlacing(a attempt, p *proposal, no *refused) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.CatchUp()
	r := a.record
	r.placing = false
	anew := true
	switch waits := c.toPlace(r); {
	case waits && no == nil:
		c.grant(r, p)
	case waits && no.final:
		c.refuse(r, no.cause)
	case waits:
		anew = r.waits(no.cause, c.wall())
		c.noteRefusal(r, no)
	case no == nil: // deleted meanwhile
		c.releaseSlots(p.kept, nil)
	}
	if anew {
		c.queue.Add(r.key())
	}
}

// releaseSlots releases slots that were granted, except those that were there before.
func (c *Controller) releaseSlots(kept []ledger.Slot, existing map[int]ledger.SlotRef) {
	var made []string
	for i := range kept {
		if _, existed := existing[i]; !existed {
			made = append(made, kept[i].Ref.Slot)
		}
	}
	if len(made) > 0 {
		c.Ledger.ReleaseSlots(kept[0].Ref.Namespace, kept[0].Ref.Name, made...)
	}
}

// grant makes a pending reservation available. c.mu is held.
func (c *Controller) grant(r *record, p *proposal) {
	r.granted(p.slots, p.availableAt, c.wall())
	r.expire(p.expiresAt, p.deadline)
	c.tell(r, string(v1alpha1.ReservationAvailable), "Reserve",
		fmt.Sprintf("%d slots are held on %s", len(p.kept), r.status.NodeName))
	c.loseNodesOf(r)
	c.applyTTL(r)
}

// refuse ends a reservation that holds nothing and never will. c.mu is held.
func (c *Controller) refuse(r *record, why cause) {
	r.finish(v1alpha1.ReservationFailed, why, c.wall())
	c.match(r)
	c.tell(r, why.reason, "End", why.message)
}
