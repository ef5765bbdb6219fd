package ledger_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// placeMany places slots of 1 CPU in gangs of 1,000, all with one deadline.
func placeMany(t *testing.T, l *ledger.Ledger, count, nodes int, deadline time.Time) {
	t.Helper()
	const gang = 1000
	r := request(1000, 1<<30)
	for first := 0; first < count; first += gang {
		var plan ledger.Plan
		for i := first; i < min(first+gang, count); i++ {
			plan.Slots = append(plan.Slots, ledger.Slot{
				Ref:  ledger.SlotRef{Namespace: "ns", Name: fmt.Sprintf("group-%d", first/gang), Slot: fmt.Sprintf("slot-%d", i)},
				Node: nodeName(i % nodes), Request: r, Policy: ledger.Once, Deadline: deadline,
				Pod: podRef(fmt.Sprintf("kept-%d", i)),
			})
		}
		result := l.Reserve(plan, start)
		require.Equal(t, len(plan.Slots), result.Granted, "%+v", result.Rejections)
	}
}

// backlog returns a ledger of full nodes whose 2,000 slots, and after them one allocation on the last of the nodes,
// have all expired at the moment returned: more than a decision lets expire for others. The last node is what the tests
// decide about.
func backlog(t *testing.T) (l *ledger.Ledger, now time.Time, last string) {
	t.Helper()
	const slots, nodes = 2000, 500
	l = newLedger(nodes, 5000, 1<<40, 110)
	now = start.Add(time.Minute)
	placeMany(t, l, slots, nodes, now.Add(-time.Second))
	last = nodeName(nodes - 1)
	at := ledger.Placement{Pod: podRef("reserved"), Node: last, Request: request(1000, 1)}
	require.Equal(t, 1, l.Reserve(ledger.NewPlan([]ledger.Placement{at}, "", now), start).Granted)
	return l, now, last
}

// TestDecisionsSeeABacklogAsExpired: however much is due, a decision finds the
// capacity of it, without having to wait for all of it.
func TestDecisionsSeeABacklogAsExpired(t *testing.T) {
	wants := func(name, node string) ledger.Placement {
		return ledger.Placement{Pod: podRef(name), Node: node, Request: request(5000, 1)}
	}
	decisions := map[string]func(*testing.T, *ledger.Ledger, time.Time, string){
		"StartBind": func(t *testing.T, l *ledger.Ledger, now time.Time, last string) {
			p := wants("new", last)
			_, rejection := l.StartBind(&p, now)
			require.Nil(t, rejection)
		},
		"Reserve of a pod whose allocation elsewhere is due": func(t *testing.T, l *ledger.Ledger, now time.Time, _ string) {
			p := wants("reserved", nodeName(498))
			result := l.Reserve(ledger.NewPlan([]ledger.Placement{p}, "", time.Time{}), now)
			require.Equal(t, 1, result.Granted, "%+v", result.Rejections)
		},
		"Reserve of a pod whose allocation there is due": func(t *testing.T, l *ledger.Ledger, now time.Time, last string) {
			p := wants("reserved", last)
			result := l.Reserve(ledger.NewPlan([]ledger.Placement{p}, "", time.Time{}), now)
			require.Equal(t, 1, result.Granted, "%+v", result.Rejections)
		},
		"Reserve of a pod whose slot elsewhere is due": func(t *testing.T, l *ledger.Ledger, now time.Time, last string) {
			p := wants("kept-998", last)
			result := l.Reserve(ledger.NewPlan([]ledger.Placement{p}, "", time.Time{}), now)
			require.Equal(t, 1, result.Granted, "%+v", result.Rejections)
		},
		"PlaceHolds of a slot that is due elsewhere": func(t *testing.T, l *ledger.Ledger, now time.Time, last string) {
			h := ledger.Slot{
				Ref:  ledger.SlotRef{Namespace: "ns", Name: "group-0", Slot: "slot-998"},
				Node: last, Request: request(5000, 1), Policy: ledger.Aligned,
			}
			result := l.Reserve(ledger.Plan{Slots: []ledger.Slot{h}}, now)
			require.Equal(t, 1, result.Granted, "%+v", result.Rejections)
			require.Empty(t, result.Existing)
		},
	}
	for name, decide := range decisions {
		t.Run(name, func(t *testing.T) {
			l, now, last := backlog(t)
			decide(t, l, now, last)
			require.NoError(t, l.CheckInvariants())
			left := l.Stats().Slots
			assert.Greater(t, left, 1000, "one decision let everything expire")
			expired := l.Expire(now)
			require.NoError(t, l.CheckInvariants())
			assert.InDelta(t, left, expired, 1)
			_, more := l.NextDeadline()
			assert.False(t, more)
		})
	}
}

// TestFarDeadlines: a deadline that has no int64 of nanoseconds is as far away as it says, and not in the past.
func TestFarDeadlines(t *testing.T) {
	for name, at := range map[string]time.Time{
		"in the year 5000": time.Date(5000, 1, 1, 0, 0, 0, 0, time.UTC),
		"after all time":   time.Unix(math.MaxInt64/2, 0),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1, 5000, 1<<40, 110)
			placeMany(t, l, 3, 1, at)
			assert.Zero(t, l.Expire(start.Add(100*365*24*time.Hour)))
			assert.Equal(t, 3, l.SetSlotDeadline("ns", "group-0", time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC)))
			assert.Equal(t, 3, l.Expire(start), "a deadline long ago")
		})
	}
}
