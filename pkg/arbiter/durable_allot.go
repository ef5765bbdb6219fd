package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// allotment is what the ledger says to the pods of a durable group. Each pod is
// refused, has capacity already, or has got a slot.
type allotment struct {
	group      *Group
	parts      []*part
	partOf     []*part // by the index of the pod
	placements []ledger.Placement
	screened   []Refusal // refused before the ledger was asked

	refusals []Refusal // in the order of the group, those screened included
	// holds are new. They are in the ledger unless the group is a dry run, or
	// all or nothing and something was refused.
	holds    []ledger.Hold
	existing []ledger.HoldRef // what pods of the group had before
	revision uint64
}

// allotTries bounds how often a group is decided anew because one of its pods
// was bound at the same moment.
const allotTries = 3

// allot asks the ledger for slots for all pods that have no capacity yet.
func (a *Arbiter) allot(t *allotment) {
	for range allotTries {
		t.refusals, t.holds, t.existing = nil, nil, nil
		if a.place(t, a.withoutClaim(t)) {
			break
		}
	}
	slices.SortFunc(t.refusals, func(a, b Refusal) int { return cmp.Compare(a.Index, b.Index) })
}

// granted returns how many pods have capacity.
func (t *allotment) granted() int {
	if len(t.refusals) > 0 && t.group.Mode == ledger.AllOrNothing {
		return 0
	}
	return len(t.placements) - len(t.refusals)
}

// hold is what is asked of the ledger for one pod. It does not expire: its
// deadline is set when its object is there and says when that is.
func (t *allotment) hold(i int) ledger.Hold {
	p, key := &t.placements[i], t.partOf[i].key
	return ledger.Hold{
		Ref:  ledger.HoldRef{Namespace: key.Namespace, Name: key.Name, Slot: p.Pod.Name},
		Node: p.Node, Request: p.Request, Policy: ledger.Once, Scheduler: p.Scheduler, Priority: p.Priority, Pod: p.Pod,
		Devices: p.Devices,
	}
}

// withoutClaim returns the pods, by their index, that need a slot. One that is
// bound to its node, or being bound, needs none, and neither does one whose claim
// in memory uses a slot there that is kept for it alone, for as much as it asks.
func (a *Arbiter) withoutClaim(t *allotment) []int {
	wanted := make([]int, 0, len(t.placements))
	screened := t.screened
	t.refusals = append(t.refusals, screened...)
	for i := range t.placements {
		p := &t.placements[i]
		if len(screened) > 0 && screened[0].Index == i {
			screened = screened[1:]
			continue
		}
		claim, ok := a.o.Ledger.Claim(p.Pod)
		switch {
		case !ok:
			wanted = append(wanted, i)
		case claim.Node != p.Node:
			t.refuse(i, &ledger.Rejection{Reason: ledger.ClaimedElsewhere, ClaimedOn: claim.Node})
		case claim.State == ledger.Reserved:
			a.slotOf(t, i, &claim)
		}
	}
	return wanted
}

// slotOf finds the capacity that a pod keeps when its claim in memory ends. A slot
// that others may use too, or that is smaller, is none: the answer would promise
// what a restart takes away.
func (a *Arbiter) slotOf(t *allotment, i int, claim *ledger.ClaimView) {
	p := &t.placements[i]
	hold, ok := a.o.Ledger.HoldFor(p.Pod)
	switch {
	case !ok || hold.Ref != claim.Hold:
		t.refuse(i, &ledger.Rejection{Reason: ledger.PodClaimed, ClaimedOn: claim.Node})
	case !hold.Request.Equal(p.Request) || !hold.Devices.Matches(p.Devices):
		t.refuse(i, &ledger.Rejection{
			Reason: ledger.HoldExists, ClaimedOn: claim.Node, Holders: []ledger.Holder{{Hold: hold.Ref, State: ledger.Reserved}},
		})
	default:
		t.existing = append(t.existing, hold.Ref)
	}
}

// place asks the ledger for slots for the wanted pods; in mode Partial, for
// those that fit. It reports false where a pod has got a claim meanwhile.
func (a *Arbiter) place(t *allotment, wanted []int) (final bool) {
	for {
		dry := t.group.DryRun || t.granted() == 0
		plan := ledger.HoldPlan{Holds: make([]ledger.Hold, len(wanted)), DryRun: dry}
		for k, i := range wanted {
			plan.Holds[k] = t.hold(i)
		}
		result := a.o.Ledger.PlaceHolds(plan, time.Now())
		t.revision = result.Revision
		if len(result.Rejections) == 0 {
			t.take(&plan, &result)
			return true
		}
		rejections, rest := result.Rejections, make([]int, 0, len(wanted))
		for k, i := range wanted {
			if len(rejections) == 0 || rejections[0].Hold != plan.Holds[k].Ref {
				rest = append(rest, i)
				continue
			}
			r := &rejections[0]
			if r.Reason == ledger.PodClaimed && r.ClaimedOn == r.Node {
				return false
			}
			t.refuse(i, r)
			rejections = rejections[1:]
		}
		if wanted = rest; t.group.Mode == ledger.AllOrNothing {
			return true
		}
	}
}

// take keeps what was granted.
func (t *allotment) take(plan *ledger.HoldPlan, result *ledger.HoldResult) {
	for k := range plan.Holds {
		if ref, existed := result.Existing[k]; existed {
			t.existing = append(t.existing, ref)
		} else if !plan.DryRun || t.group.DryRun {
			t.holds = append(t.holds, plan.Holds[k])
		}
	}
}

// giveUp ends the slots that were made.
func (a *Arbiter) giveUp(t *allotment) {
	if !t.group.DryRun {
		for _, p := range t.parts {
			a.giveUpPart(t, p)
		}
	}
	t.holds = nil
}

func (a *Arbiter) giveUpPart(t *allotment, p *part) {
	if slots := t.slots(p); len(slots) > 0 {
		a.o.Ledger.ReleaseHolds(p.key.Namespace, p.key.Name, slots...)
	}
}

// slots are those that were made of one part.
func (t *allotment) slots(p *part) []string {
	var slots []string
	for i := range t.holds {
		if ref := &t.holds[i].Ref; ref.Namespace == p.key.Namespace && ref.Name == p.key.Name {
			slots = append(slots, ref.Slot)
		}
	}
	return slots
}

// refuse notes that a pod has no capacity, in the words of /reserve.
func (t *allotment) refuse(i int, r *ledger.Rejection) {
	p := &t.placements[i]
	r.Pod, r.Node = p.Pod, p.Node
	message := ""
	switch {
	case r.Reason == ledger.PodClaimed && r.ClaimedOn == p.Node:
		message = fmt.Sprintf("room for pod %s is reserved on node %q in memory: give it back first, or send \"Durable\": false", p.Pod, p.Node)
	case r.Reason == ledger.PodClaimed:
		r.Reason = ledger.ClaimedElsewhere
	case r.Reason == ledger.HoldExists && len(r.Holders) > 0:
		message = fmt.Sprintf("room for pod %s is reserved on node %q for another request of resources, by %s: give it back first",
			p.Pod, p.Node, r.Holders[0].Name())
	case r.Reason == ledger.HoldExists:
		message = fmt.Sprintf("reservation %s has room for another pod of the name on node %q: choose another Name", r.Hold, r.ClaimedOn)
	}
	r.Hold = ledger.HoldRef{}
	refusal := refusedByLedger(i, r)
	if message != "" {
		refusal.Message = message
	}
	t.refusals = append(t.refusals, refusal)
}
