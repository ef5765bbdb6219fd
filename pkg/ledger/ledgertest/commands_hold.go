package ledgertest

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// placeHolds is place-holds mode=Partial dry-run, then a line per hold; see words.hold.
func (r *transcript) placeHolds(c *words, lines []*words) []string {
	plan := ledger.Plan{Mode: ledger.Mode(c.value("mode"))}
	for _, line := range lines {
		plan.Slots = append(plan.Slots, line.hold(r, 0, false))
	}
	return r.decide(c, plan)
}

// observeHold is observe-hold r/x node cpu=1000, see words.hold.
func (r *transcript) observeHold(c *words, _ []*words) []string {
	return yesNo(r.ledger.ObserveHold(c.hold(r, 1, true)), "new", "known")
}

// holdDeadline is hold-deadline r ttl=10s; without a ttl the holds never expire.
func (r *transcript) holdDeadline(c *words, _ []*words) []string {
	n := r.ledger.SetHoldDeadline("ns", c.word(1), c.deadline(r))
	return []string{fmt.Sprintf("%d holds", n)}
}

// releaseHolds is release-holds r x y; without slots all of them.
func (r *transcript) releaseHolds(c *words, _ []*words) []string {
	n := r.ledger.ReleaseHolds("ns", c.word(1), c.plain[2:]...)
	return []string{fmt.Sprintf("released %d", n)}
}

// removePodHolding is remove-pod-holding pod r/x version=3, with what else words.hold
// reads but for the node and the amounts.
func (r *transcript) removePodHolding(c *words, _ []*words) []string {
	pod := podRef(c.word(1))
	c.plain = c.plain[1:]
	held := r.ledger.RemovePodHolding(pod, uint64(c.number("version")), c.hold(r, 1, true))
	return yesNo(held, "holding its room", "holding nothing")
}

// hold reads "r/x node cpu=1 policy=Aligned priority=1 preemptible pod=a@1 ttl=10s
// by=scheduler uid=1"; the policy is Once unless given.
func (w *words) hold(r *transcript, first int, observed bool) ledger.Hold {
	h := ledger.Hold{
		Ref: holdRef(w.word(first)), UID: types.UID(w.value("uid")), Node: w.word(first + 1), Request: w.request(r.ledger.Table(), observed),
		Policy: ledger.Once, Scheduler: w.value("by"), Priority: int32(w.number("priority")),
		Preemptible: w.flag("preemptible"), Deadline: w.deadline(r),
	}
	if policy := w.value("policy"); policy != "" {
		h.Policy = ledger.AllocatePolicy(policy)
	}
	if pod := w.value("pod"); pod != "" {
		h.Pod = podRef(pod)
	}
	return h
}

// deadline reads ttl=10s; without it there is none.
func (w *words) deadline(r *transcript) time.Time {
	if ttl, ok := w.duration("ttl"); ok {
		return at(r.now + ttl)
	}
	return time.Time{}
}

// holds returns a list of holds.
func (w *words) holds(key string) []ledger.HoldRef {
	var refs []ledger.HoldRef
	for _, text := range w.list(key) {
		refs = append(refs, holdRef(text))
	}
	return refs
}

// holdRef reads r/x as the slot x of ns/r, and other/r/x as that of other/r.
func holdRef(text string) ledger.HoldRef {
	parts := strings.Split(text, "/")
	switch len(parts) {
	case 2:
		return ledger.HoldRef{Namespace: "ns", Name: parts[0], Slot: parts[1]}
	case 3:
		return ledger.HoldRef{Namespace: parts[0], Name: parts[1], Slot: parts[2]}
	default:
		return ledger.HoldRef{}
	}
}

func refText(ref ledger.HoldRef) string { return strings.TrimPrefix(ref.String(), "ns/") }

func using(ref ledger.HoldRef) string {
	if ref.Name == "" {
		return ""
	}
	return " using " + refText(ref)
}

// holdEvent says of which hold, and of which pod: the only one it was for, or
// the one that ended it.
func (r *transcript) holdEvent(e *ledger.Event) string {
	if e.Hold.Name == "" {
		return inMemoryText(e.Pod, e.Node, e.Scheduler, e.Deadline) + within(e.Within)
	}
	text := fmt.Sprintf("%s on %s %s", refText(e.Hold), e.Node, e.Policy)
	if !e.Deadline.IsZero() {
		text += " until " + e.Deadline.Sub(at(0)).String()
	}
	if e.Overdue {
		text += ", overdue"
	}
	if e.Pod.Name == "" {
		return text
	}
	if e.Type == ledger.HoldConsumed || e.Type == ledger.HoldPreempted {
		return text + " by " + podText(e.Pod)
	}
	return text + " for " + podText(e.Pod)
}

// holdView tells a hold, what it keeps beyond its pods, and those.
func (r *transcript) holdView(h *ledger.HoldView) string {
	if h.InMemory() {
		return inMemoryText(h.Pod, h.Node, h.Scheduler, h.Deadline) + within(h.Within)
	}
	text := fmt.Sprintf("%s on %s %s", refText(h.Ref), h.Node, h.Policy)
	if !h.Deadline.IsZero() {
		text += " until " + h.Deadline.Sub(at(0)).String()
	}
	if h.Overdue {
		text += ", overdue"
	}
	if h.Pod.Name != "" {
		text += " for " + podText(h.Pod)
	}
	text += ", keeps"
	for _, a := range h.Rest.Amounts {
		text += fmt.Sprintf(" %s %d", r.ledger.Table().Name(a.Column), a.Value)
	}
	for _, c := range h.Consumers {
		if c.State == ledger.NoClaim {
			text += fmt.Sprintf(", used by %s (in memory)", podText(c.Pod))
			continue
		}
		text += fmt.Sprintf(", used by %s (%s)", podText(c.Pod), c.State)
	}
	return text
}

// inMemoryText tells a slot in memory.
func inMemoryText(pod ledger.PodRef, node, by string, deadline time.Time) string {
	text := fmt.Sprintf("in memory for %s on %s", podText(pod), node)
	if by != "" {
		text += " by " + by
	}
	if !deadline.IsZero() {
		text += " until " + deadline.Sub(at(0)).String()
	}
	return text
}

func within(ref ledger.HoldRef) string {
	if ref.Name == "" {
		return ""
	}
	return " within " + refText(ref)
}
