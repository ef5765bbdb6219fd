package ledgertest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Check finds what is wrong inside a ledger. Only the ledger's own tests can look there.
type Check func(l *ledger.Ledger) error

// Explorer does things to a ledger and checks its laws. Some hold at any time:
//
//   - what it keeps is the sum of what it says that there is (Check), and its events tell all of it (Mirror);
//   - nothing lasts longer than its deadline, but for a bind.
//
// Others hold for decisions, as observations may break them:
//
//   - no node, device, port, slot or quota of a namespace is used more than it offers, or than before;
//   - a refusal changes nothing, and says what is missing;
//   - what was said before, when it was asked or tried, is what is done, and asking changes nothing.
type Explorer struct {
	*ledger.Ledger

	t      *rapid.T
	check  Check
	mirror *Mirror
	met    map[ledger.Reason]int        // what was answered to those who asked
	limits [2]map[string]*ledger.Limits // by kind

	nominated time.Time         // until when something may be kept for nominated pods
	nominee   *ledger.Placement // of the last of them, until nomineeUntil at most

	nomineeUntil time.Time
}

// NewExplorer explores a ledger that has no events yet.
func NewExplorer(t *rapid.T, l *ledger.Ledger, check Check) *Explorer {
	return &Explorer{
		Ledger: l, t: t, check: check, mirror: NewMirror(l.Table(), l.Revision()), met: map[ledger.Reason]int{},
	}
}

// Check checks the laws that hold at any time.
func (e *Explorer) Check(t *rapid.T) {
	require.NoError(t, e.check(e.Ledger))
	events, ok := e.EventsSince(nil, e.mirror.revision, 1<<30)
	require.True(t, ok, "the journal reaches back")
	for k := range events {
		require.NoError(t, e.mirror.Apply(&events[k]))
	}
	require.NoError(t, e.mirror.Agrees(e.Reader))
	e.counts()
	if e.nominee != nil {
		if _, has := e.PlaceOf(e.nominee.Pod); has {
			e.nominee = nil
		}
	}
}

// counts checks the counts behind the metrics.
func (e *Explorer) counts() {
	s, want := e.Snapshot(), ledger.Stats{InMemoryExpired: e.mirror.expired}
	for i := range s.Nodes {
		if s.Nodes[i].Exists {
			want.Nodes++
		}
		if s.Nodes[i].Overcommitted() {
			want.OvercommittedNodes++
		}
	}
	for i := range s.Allocations {
		want.Allocations[s.Allocations[i].State]++
	}
	next, some := e.NextDeadline()
	for i := range s.Slots {
		h := &s.Slots[i]
		if h.InMemory() {
			want.InMemory++
		} else {
			want.Slots++
		}
		later := some && !next.After(h.Deadline)
		require.True(e.t, later || h.Overdue || h.Deadline.IsZero(), "the next deadline is %s, and there is %+v", next, h)
	}
	require.Equal(e.t, want, e.Stats())
}

// excess is how much more of something is used than there is, by what it is.
type excess map[string]int64

func (x excess) add(over int64, format string, args ...any) {
	if over > 0 {
		x[fmt.Sprintf(format, args...)] += over
	}
}

// excess returns all that is used beyond what there is.
func (e *Explorer) excess() excess {
	x, s := excess{}, e.Snapshot()
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for _, a := range n.Amounts {
			column, _ := e.Table().Lookup(a.Resource)
			if slices.Contains(e.mirror.nodes[n.Name].DRA, column) {
				continue // a pod that has it otherwise turns what was left to DRA into amounts
			}
			if len(n.Devices) > 0 && a.Allocatable == 0 && column > resources.Pods {
				continue // its devices are counted
			}
			over, _ := resources.Add(a.Bound, a.Reserved)
			x.add(min(resources.Sub(over, a.Allocatable), -a.Free), "%s of node %s", a.Resource, n.Name)
		}
		for _, both := range collisions(n.Name, s.Allocations, s.Slots) {
			x.add(1, "a port of node %s by %s", n.Name, both)
		}
	}
	deviceExcess(x, &s)
	for i := range s.Slots {
		e.slotExcess(x, &s, &s.Slots[i])
	}
	for _, b := range e.Budgets(ledger.OfNamespace) { // what a caller's slots count for depends on pods of other callers
		for k, used := range b.Used {
			x.add(resources.Sub(used.Value, b.Limits.Use[k].Value), "use of column %d by %s", used.Column, b.Name)
		}
		if b.Limits.Slots != nil {
			x.add(b.Slots-*b.Limits.Slots, "slots of %s", b.Name)
		}
	}
	return x
}

// slotExcess adds what the pods of a slot use of it that is not theirs.
func (e *Explorer) slotExcess(x excess, s *ledger.Snapshot, h *ledger.SlotView) {
	if h.InMemory() {
		return
	}
	if h.Policy == ledger.Once {
		x.add(int64(len(h.Consumers)-1), "slot %s", h.Ref)
	}
	sums := map[resources.Column]int64{}
	for _, c := range h.Consumers {
		if h.Pod.Name != "" && c.Pod.Name != h.Pod.Name {
			x.add(1, "slot %s of %s by %s", h.Ref, h.Pod, c.Pod)
		}
		for _, a := range requestIn(s, c.Pod).Amounts {
			sums[a.Column], _ = resources.Add(sums[a.Column], a.Value)
		}
	}
	for _, a := range h.Request.Amounts {
		if h.Policy == ledger.Restricted && a.Column != resources.Pods {
			x.add(resources.Sub(sums[a.Column], a.Value), "column %d of slot %s", a.Column, h.Ref)
		}
	}
}

func requestIn(s *ledger.Snapshot, pod ledger.PodRef) *resources.Request {
	for k := range s.Allocations {
		if s.Allocations[k].Pod == pod {
			return s.Allocations[k].Request
		}
	}
	for k := range s.Slots {
		if s.Slots[k].InMemory() && s.Slots[k].Pod == pod {
			return s.Slots[k].Request
		}
	}
	return &resources.Request{}
}

// decide checks the laws of decisions. what returns whether anything was granted.
func (e *Explorer) decide(now time.Time, what func() (granted bool)) {
	e.Expire(now)
	before, was := e.excess(), e.Snapshot()
	if what() {
		after := e.excess()
		for name, over := range after {
			if over > math.MaxInt64/2 {
				continue // a sum that no number holds stops at the largest
			}
			require.LessOrEqual(e.t, over, before[name], "%s is used more than it offers: %v, before %v\n%s\n%s", name, after,
				before, text(&was), text(new(e.Snapshot())))
		}
		return
	}
	require.Equal(e.t, was, e.Snapshot(), "a refusal changes nothing")
}

// text shows a snapshot.
func text(s *ledger.Snapshot) string {
	var b strings.Builder
	for i := range s.Nodes {
		fmt.Fprintf(&b, "node %+v\n", s.Nodes[i])
	}
	for i := range s.Allocations {
		fmt.Fprintf(&b, "allocation %+v %s\n", s.Allocations[i], amounts(s.Allocations[i].Request))
	}
	for i := range s.Slots {
		fmt.Fprintf(&b, "slot %+v %s\n", s.Slots[i], amounts(s.Slots[i].Request))
	}
	return b.String()
}

// Expire lets what has ended go.
func (e *Explorer) Expire(now time.Time) {
	e.Ledger.Expire(now)
	slots, _ := e.Slots()
	for k := range slots {
		if h := &slots[k]; !h.Deadline.IsZero() && !h.Deadline.After(now) {
			binding := func(c ledger.Consumer) bool { return c.State == ledger.Binding }
			require.True(e.t, h.Overdue && slices.ContainsFunc(h.Consumers, binding), "should be over by %s: %+v", now, h)
		}
	}
	next, ok := e.NextDeadline()
	require.True(e.t, !ok || next.After(now), "what ends at %s is over at %s", next, now)
}
