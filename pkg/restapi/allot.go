package restapi

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// allotment is what the ledger says to the pods of a durable group. Each pod is
// refused, has room already, or has got a hold.
type allotment struct {
	group      *group
	key        types.NamespacedName // of the reservation
	placements []ledger.Placement
	screened   []refusal // refused before the ledger was asked

	refusals []refusal // in the order of the request, those screened included
	// holds are new. They are in the ledger unless the request is a dry run, or
	// all or nothing and something was refused.
	holds    []ledger.Hold
	existing []ledger.HoldRef // what pods of the group had before
	revision uint64
}

// allotTries bounds how often a group is decided anew because one of its pods
// was bound at the same moment.
const allotTries = 3

// allot asks the ledger for holds for all pods that have no room yet.
func (a *API) allot(t *allotment) {
	for range allotTries {
		t.refusals, t.holds, t.existing = nil, nil, nil
		if a.place(t, a.withoutClaim(t)) {
			break
		}
	}
	slices.SortFunc(t.refusals, func(a, b refusal) int { return cmp.Compare(a.index, b.index) })
}

// granted returns how many pods have room.
func (t *allotment) granted() int {
	if len(t.refusals) > 0 && t.group.mode == ledger.AllOrNothing {
		return 0
	}
	return len(t.placements) - len(t.refusals)
}

// hold is what is asked of the ledger for one pod. It does not expire: its
// deadline is set when its object is there and says when that is.
func (t *allotment) hold(i int) ledger.Hold {
	p := &t.placements[i]
	return ledger.Hold{
		Ref:  ledger.HoldRef{Namespace: t.key.Namespace, Name: t.key.Name, Slot: p.Pod.Name},
		Node: p.Node, Request: p.Request, Policy: ledger.Once, Scheduler: p.Scheduler, Priority: p.Priority, Pod: p.Pod,
		Devices: p.Devices,
	}
}

// withoutClaim returns the pods, by their index, that need a hold. One that is
// bound to its node, or being bound, needs none, and neither does one whose claim
// in memory uses a slot there that is kept for it alone, for as much as it asks.
func (a *API) withoutClaim(t *allotment) []int {
	wanted := make([]int, 0, len(t.placements))
	screened := t.screened
	t.refusals = append(t.refusals, screened...)
	for i := range t.placements {
		p := &t.placements[i]
		if len(screened) > 0 && screened[0].index == i {
			screened = screened[1:]
			continue
		}
		claim, ok := a.ledger.Claim(p.Pod)
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

// slotOf finds the room that a pod keeps when its claim in memory ends. A slot
// that others may use too, or that is smaller, is none: the answer would promise
// what a restart takes away.
func (a *API) slotOf(t *allotment, i int, claim *ledger.ClaimView) {
	p := &t.placements[i]
	hold, ok := a.ledger.HoldFor(p.Pod)
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

// place asks the ledger for holds for the wanted pods; in mode Partial, for
// those that have room. It reports false where a pod has got a claim meanwhile.
func (a *API) place(t *allotment, wanted []int) (final bool) {
	for {
		dry := t.group.dryRun || t.granted() == 0
		plan := ledger.HoldPlan{Holds: make([]ledger.Hold, len(wanted)), DryRun: dry}
		for k, i := range wanted {
			plan.Holds[k] = t.hold(i)
		}
		result := a.ledger.PlaceHolds(plan, a.clock.Now())
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
		if wanted = rest; t.group.mode == ledger.AllOrNothing {
			return true
		}
	}
}

// take keeps what was granted.
func (t *allotment) take(plan *ledger.HoldPlan, result *ledger.HoldResult) {
	for k := range plan.Holds {
		if ref, existed := result.Existing[k]; existed {
			t.existing = append(t.existing, ref)
		} else if !plan.DryRun || t.group.dryRun {
			t.holds = append(t.holds, plan.Holds[k])
		}
	}
}

// giveUp ends the holds that were made.
func (a *API) giveUp(t *allotment) {
	if len(t.holds) > 0 && !t.group.dryRun {
		a.ledger.ReleaseHolds(t.key.Namespace, t.key.Name, t.slots()...)
	}
	t.holds = nil
}

func (t *allotment) slots() []string {
	slots := make([]string, len(t.holds))
	for i := range t.holds {
		slots[i] = t.holds[i].Ref.Slot
	}
	return slots
}

// refuse notes that a pod has no room, in the words of /reserve.
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
	if message == "" {
		message = r.Message()
	}
	t.refusals = append(t.refusals, refusal{Rejection: *r, index: i, message: message})
}
