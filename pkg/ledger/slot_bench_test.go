package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// placeMany places slots of 1 CPU in gangs of 1,000, all with one deadline.
func placeMany(tb testing.TB, l *ledger.Ledger, count, nodes int, deadline time.Time) {
	tb.Helper()
	const gang = 1000
	r := request(1000, 1<<30)
	for first := 0; first < count; first += gang {
		var plan ledger.Plan
		for i := first; i < min(first+gang, count); i++ {
			plan.Slots = append(plan.Slots, ledger.Slot{
				Ref:  ledger.SlotRef{Namespace: "ns", Name: fmt.Sprintf("group-%d", first/gang), Slot: fmt.Sprintf("slot-%d", i)},
				Node: nodeName(i % nodes), Request: r, Policy: ledger.Once, Deadline: deadline, Pod: podRef(fmt.Sprintf("kept-%d", i)),
			})
		}
		result := l.Reserve(plan, start)
		require.Equal(tb, len(plan.Slots), result.Granted, "%+v", result.Rejections)
	}
}

// BenchmarkExpireSlots measures 10,000 slots that expire at one moment: the
// whole of it, and the longest that a decision takes meanwhile.
func BenchmarkExpireSlots(b *testing.B) {
	const count = 10_000
	l := fullCluster(b)
	deadline := start
	p := newcomers(1)[0]
	for _, first := range []string{"Expire", "StartBind"} {
		b.Run(first, func(b *testing.B) {
			b.ReportAllocs()
			var longest time.Duration
			for b.Loop() {
				b.StopTimer()
				deadline = deadline.Add(time.Second)
				placeMany(b, l, count, benchNodes, deadline)
				b.StartTimer()
				if first == "StartBind" {
					began := time.Now()
					_, rejection := l.StartBind(&p, deadline)
					longest = max(longest, time.Since(began))
					require.Nil(b, rejection)
					l.BindFailed(p.Pod, p.Node)
				}
				l.Expire(deadline)
				require.Zero(b, l.Stats().Slots)
			}
			if first == "StartBind" {
				b.ReportMetric(float64(longest.Microseconds()), "longest-decision-us")
			}
		})
	}
}
