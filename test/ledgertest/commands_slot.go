package ledgertest

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// placeSlots is place-slots mode=Partial dry-run, then a line per slot; see words.slot.
func (r *transcript) placeSlots(c *words, lines []*words) []string {
	plan := ledger.Plan{Mode: ledger.Mode(c.value("mode"))}
	for _, line := range lines {
		plan.Slots = append(plan.Slots, line.slot(r, 0, false))
	}
	return r.decide(c, plan)
}

// observeSlot is observe-slot r/x node cpu=1000, see words.slot.
func (r *transcript) observeSlot(c *words, _ []*words) []string {
	return yesNo(r.ledger.ObserveSlot(c.slot(r, 1, true)), "new", "known")
}

// slotDeadline is slot-deadline r ttl=10s; without a ttl the slots never expire.
func (r *transcript) slotDeadline(c *words, _ []*words) []string {
	n := r.ledger.SetSlotDeadline("ns", c.word(1), c.deadline(r))
	return []string{fmt.Sprintf("%d slots", n)}
}

// releaseSlots is release-slots r x y; without slots all of them.
func (r *transcript) releaseSlots(c *words, _ []*words) []string {
	n := r.ledger.ReleaseSlots("ns", c.word(1), c.plain[2:]...)
	return []string{fmt.Sprintf("released %d", n)}
}

// removePodHolding is remove-pod-holding pod r/x version=3, with what else words.slot
// reads but for the node and the amounts.
func (r *transcript) removePodHolding(c *words, _ []*words) []string {
	pod := podRef(c.word(1))
	c.plain = c.plain[1:]
	held, refused := r.ledger.RemovePodHolding(pod, uint64(c.number("version")), c.slot(r, 1, true))
	if refused != nil {
		return []string{"refused: " + r.rejection(refused)}
	}
	return yesNo(held, "holding its capacity", "holding nothing")
}

// limits is limits ns cpu=10 keep-cpu=3 slots=2, what the pods and slots of a namespace may use,
// its slots keep, and how many these may be; limits caller c1 cpu=10 is for a caller. Without anything
// there are no limits; the name "rest" stands for all others.
func (r *transcript) limits(c *words, _ []*words) []string {
	kind, name := ledger.OfNamespace, c.word(1)
	if name == "caller" {
		kind, name = ledger.OfCaller, c.word(2)
	}
	limits := &ledger.Limits{}
	keep := &words{pairs: map[string]string{}, used: map[string]bool{}}
	for key := range c.pairs {
		if resource, ok := strings.CutPrefix(key, "keep-"); ok {
			keep.pairs[resource] = c.value(key)
		}
	}
	limits.Use, _ = c.amounts(r.ledger.Table(), true)
	limits.Keep, _ = keep.amounts(r.ledger.Table(), true)
	if c.value("slots") != "" {
		limits.Slots = new(c.number("slots"))
	}
	if len(c.pairs) == 0 {
		limits = nil
	}
	if name == "rest" {
		name = ""
	}
	r.limited[kind] = merged(r.limited[kind], map[string]*ledger.Limits{name: limits})
	r.ledger.SetLimits(kind, r.limited[kind])
	return r.budgets(kind)
}

// budgets shows what budgets of a kind hold.
func (r *transcript) budgets(kind ledger.BudgetKind) (lines []string) {
	for _, b := range r.ledger.Budgets(kind) {
		text := "budget " + b.Name + ":"
		for k, limit := range b.Limits.Use {
			text += fmt.Sprintf(" %s %d of %d", r.ledger.Table().Name(limit.Column), b.Used[k].Value, limit.Value)
		}
		for k, limit := range b.Limits.Keep {
			text += fmt.Sprintf(" kept %s %d of %d", r.ledger.Table().Name(limit.Column), b.Kept[k].Value, limit.Value)
		}
		if b.Limits.Slots != nil {
			text += fmt.Sprintf(" slots %d of %d", b.Slots, *b.Limits.Slots)
		}
		lines = append(lines, text)
	}
	if len(lines) == 0 {
		return []string{"nothing is limited"}
	}
	return lines
}

// showBudgets is budgets, of namespaces or callers.
func (r *transcript) showBudgets(c *words, _ []*words) []string {
	if c.word(1) == "callers" {
		return r.budgets(ledger.OfCaller)
	}
	return r.budgets(ledger.OfNamespace)
}

// slot reads "r/x node cpu=1 policy=Aligned priority=1 preemptible pod=a@1 ttl=10s
// by=scheduler uid=1 pod-to-come"; the policy is Once unless given.
func (w *words) slot(r *transcript, first int, observed bool) ledger.Slot {
	h := ledger.Slot{
		Ref: slotRef(w.word(first)), UID: types.UID(w.value("uid")), Node: w.word(first + 1),
		Request:   w.request(r.ledger.Table(), observed),
		Policy:    ledger.AllocatePolicy(cmp.Or(w.value("policy"), string(ledger.Once))),
		Scheduler: w.value("by"), Caller: w.value("caller"), Priority: int32(w.number("priority")),
		Preemptible: w.flag("preemptible"), Deadline: w.deadline(r), PodToCome: w.flag("pod-to-come"),
	}
	if pod := w.value("pod"); pod != "" {
		h.Pod = podRef(pod)
	}
	h.Devices = w.claimed()
	h.Request = h.Devices.Counted(r.ledger.Table(), h.Request)
	return h
}

// deadline reads ttl=10s; without it there is none.
func (w *words) deadline(r *transcript) time.Time {
	if ttl, ok := w.duration("ttl"); ok {
		return at(r.now + ttl)
	}
	return time.Time{}
}

// slots returns a list of slots.
func (w *words) slots(key string) []ledger.SlotRef {
	var refs []ledger.SlotRef
	for _, text := range w.list(key) {
		refs = append(refs, slotRef(text))
	}
	return refs
}

// slotRef reads r/x as the slot x of ns/r, and other/r/x as that of other/r.
func slotRef(text string) ledger.SlotRef {
	parts := strings.Split(text, "/")
	switch len(parts) {
	case 2:
		return ledger.SlotRef{Namespace: "ns", Name: parts[0], Slot: parts[1]}
	case 3:
		return ledger.SlotRef{Namespace: parts[0], Name: parts[1], Slot: parts[2]}
	default:
		return ledger.SlotRef{}
	}
}

func refText(ref ledger.SlotRef) string { return strings.TrimPrefix(ref.String(), "ns/") }

// with is a slot after a word, if there is one.
func with(word string, ref ledger.SlotRef) string {
	if ref.Name == "" {
		return ""
	}
	return word + refText(ref)
}

// slotEvent says of which slot, and of which pod: the only one it was for, or the one that ended it.
func (r *transcript) slotEvent(e *ledger.Event) string {
	if e.Slot.Name == "" {
		return inMemoryText(e.Pod, e.Node, e.Scheduler, e.Deadline) + with(" within ", e.Within)
	}
	text := slotText(e.Slot, e.Node, e.Policy, e.Deadline, e.Overdue)
	if e.Pod.Name == "" {
		return text
	}
	if e.Type == ledger.SlotConsumed || e.Type == ledger.SlotPreempted {
		return text + " by " + podText(e.Pod)
	}
	return text + " for " + podText(e.Pod)
}

// slotView tells a slot, what it keeps beyond its pods, and those.
func (r *transcript) slotView(h *ledger.SlotView) string {
	if h.InMemory() {
		return inMemoryText(h.Pod, h.Node, h.Scheduler, h.Deadline) + with(" within ", h.Within)
	}
	text := slotText(h.Ref, h.Node, h.Policy, h.Deadline, h.Overdue)
	if h.Pod.Name != "" {
		text += " for " + podText(h.Pod)
	}
	text += givenText(h.Given) + ", keeps"
	for _, a := range h.Rest.Amounts {
		text += fmt.Sprintf(" %s %d", r.ledger.Table().Name(a.Column), a.Value)
	}
	for _, c := range h.Consumers {
		if c.State == ledger.NoAllocation {
			text += fmt.Sprintf(", used by %s (in memory)", podText(c.Pod))
			continue
		}
		text += fmt.Sprintf(", used by %s (%s)", podText(c.Pod), c.State)
	}
	return text
}

// slotText tells a slot of a reservation.
func slotText(ref ledger.SlotRef, node string, policy ledger.AllocatePolicy, deadline time.Time, overdue bool) string {
	text := fmt.Sprintf("%s on %s %s%s", refText(ref), node, policy, until(deadline))
	if overdue {
		text += ", overdue"
	}
	return text
}

// inMemoryText tells a slot in memory.
func inMemoryText(pod ledger.PodRef, node, by string, deadline time.Time) string {
	text := fmt.Sprintf("in memory for %s on %s", podText(pod), node)
	if by != "" {
		text += " by " + by
	}
	return text + until(deadline)
}

// until tells a deadline, if there is one.
func until(deadline time.Time) string {
	if deadline.IsZero() {
		return ""
	}
	return " until " + deadline.Sub(at(0)).String()
}
