package reserve

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// durableAttempt is what the ledger says to the pods of a durable gang. Each pod is
// refused, has capacity already, or has got a slot.
type durableAttempt struct {
	gang       *Request
	attempt    string // distinguishes the writers of equal requests
	key        types.NamespacedName
	object     *v1alpha1.Reservation // nil where no pod may have capacity
	placements []ledger.Placement
	screened   []Refusal // refused before the ledger was asked

	refusals []Refusal // in the order of the gang, those screened included
	// kept are new. They are in the ledger unless the gang is a dry run, or all or nothing and something was refused.
	kept     []ledger.Slot
	existing []ledger.SlotRef // what pods of the gang had before
	// allocated are the pods, by their index, that need no slot.
	allocated []int
	revision  uint64
}

// allotTries bounds how often a gang is decided anew because others are keeping capacity for its pods.
const allotTries = 3

// allot asks the ledger for slots for all pods. One that is bound to its node, or being bound, needs none.
func (a *Arbiter) allot(t *durableAttempt) error {
	wanted := notRefused(len(t.placements), t.screened)
	t.allocated = nil
	for {
		t.refusals, t.kept, t.existing = slices.Clone(t.screened), nil, nil
		plan, now := ledger.Plan{Slots: make([]ledger.Slot, len(wanted)), Mode: t.gang.Mode}, a.o.Ledger.Clock.Wall()
		for k, i := range wanted {
			plan.Slots[k] = t.slot(i)
			plan.Slots[k].AvailableAt = now
		}
		result, err := a.o.Ledger.Reserve(plan, t.gang.DryRun || t.granted() == 0)
		if err != nil {
			return err
		}
		t.revision = result.Revision
		rest := t.take(wanted, &plan, &result)
		if len(rest) == len(wanted) || t.gang.Mode == ledger.Partial || len(t.refusals) > len(t.screened) {
			break
		}
		wanted = rest
	}
	slices.SortFunc(t.refusals, func(a, b Refusal) int { return cmp.Compare(a.Index, b.Index) })
	return nil
}

// granted returns how many pods have capacity.
func (t *durableAttempt) granted() int {
	if len(t.refusals) > 0 && t.gang.Mode == ledger.AllOrNothing {
		return 0
	}
	return len(t.placements) - len(t.refusals)
}

// slot is what is asked of the ledger for one pod. It does not expire: its
// deadline is set when its object is there and says when that is.
func (t *durableAttempt) slot(i int) ledger.Slot {
	p, key := &t.placements[i], t.key
	return ledger.Slot{
		Ref:  ledger.SlotRef{Namespace: key.Namespace, Name: key.Name, Slot: p.Pod.Name},
		Node: p.Node, Request: p.Request.Capacity(), Policy: ledger.Once, Scheduler: p.Scheduler,
		Caller: p.Caller, Priority: p.Priority, Pod: p.Pod, Devices: p.Devices, PodToCome: p.PodToCome,
	}
}

// take notes what was granted, and what was refused. It returns those of the wanted pods
// that are not yet bound, or being bound, to the node that was asked for.
func (t *durableAttempt) take(wanted []int, plan *ledger.Plan, result *ledger.Result) (rest []int) {
	rejections := result.Rejections
	made := len(rejections) == 0 || plan.Mode == ledger.Partial
	for k, i := range wanted {
		if len(rejections) > 0 && rejections[0].Slot == plan.Slots[k].Ref {
			r := &rejections[0]
			rejections = rejections[1:]
			if r.Reason == ledger.PodAllocated && r.AllocatedOn == r.Node {
				t.allocated = append(t.allocated, i)
				continue
			}
			t.refuse(i, r)
		} else if ref, existed := result.Existing[k]; existed {
			t.existing = append(t.existing, ref)
		} else if made && (t.gang.DryRun || t.granted() > 0) {
			t.kept = append(t.kept, plan.Slots[k])
		}
		rest = append(rest, i)
	}
	return rest
}

// giveUp ends the slots that were made.
func (a *Arbiter) giveUp(t *durableAttempt) {
	if slots := t.slots(); len(slots) > 0 && !t.gang.DryRun {
		a.o.Ledger.ReleaseSlots(t.key.Namespace, t.key.Name, slots...)
	}
	t.kept = nil
}

// slots are the names of those that were made.
func (t *durableAttempt) slots() []string {
	slots := make([]string, len(t.kept))
	for i := range t.kept {
		slots[i] = t.kept[i].Ref.Slot
	}
	return slots
}

// refuse notes that a pod has no capacity, in the words of /reserve.
func (t *durableAttempt) refuse(i int, r *ledger.Rejection) {
	p := &t.placements[i]
	r.Pod, r.Node = p.Pod, p.Node
	message := ""
	exists := r.Reason == ledger.SlotExists
	inMemory := exists && len(r.Holders) > 0 && r.Holders[0].Slot.Name == ""
	switch {
	case inMemory && r.AllocatedOn == p.Node:
		r.Reason = ledger.PodAllocated
		message = fmt.Sprintf("capacity for pod %s is reserved on node %q in memory: give it back first, or send "+
			"\"Durable\": false", p.Pod, p.Node)
	case inMemory, r.Reason == ledger.PodAllocated:
		r.Reason = ledger.AllocatedElsewhere
	case exists && len(r.Holders) > 0:
		message = fmt.Sprintf("capacity for pod %s is reserved on node %q for another request of resources, by %s: give "+
			"it back first",
			p.Pod, p.Node, r.Holders[0].Name())
	case exists:
		message = fmt.Sprintf("reservation %s has capacity for another pod of the name on node %q: choose another Name",
			r.Slot, r.AllocatedOn)
	}
	if inMemory {
		r.Holders = nil
	}
	r.Slot = ledger.SlotRef{}
	refusal := refusedByLedger(i, r)
	if message != "" {
		refusal.Message = message
	}
	t.refusals = append(t.refusals, refusal)
}
