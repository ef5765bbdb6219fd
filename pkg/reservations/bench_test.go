package reservations

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// BenchmarkChoose chooses the nodes of one group on 5,000 nodes.
func BenchmarkChoose(b *testing.B) {
	for _, slots := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			l := ledger.New(ledger.Options{})
			w := &world{t: b, ledger: l, nodes: map[string]Node{}, read: true}
			c := New(Options{Ledger: arbiter.NewGatedLedger(l, func() string { return "" }), Client: newClient(), Node: w.Node})
			for i := range 5000 {
				n := Node{Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{"zone": "a"}}
				w.nodes[n.Name] = n
				w.observeNode(n)
			}
			rsv := newReservation("r", time.Minute)
			for i := range slots {
				s := slot(fmt.Sprintf("s%d", i), "", 1000)
				s.NodeSelector = map[string]string{"zone": "a"}
				rsv.Spec.Slots = append(rsv.Spec.Slots, s)
			}
			for b.Loop() {
				holds, err := convert.Holds(l.Table(), rsv)
				require.NoError(b, err)
				require.Nil(b, c.choose(l.Survey(), holds, rsv.Spec.Slots))
			}
		})
	}
}

// BenchmarkEndOfMany has 10,000 reservations expire at once and measures until
// all records tell so; writes are not counted.
func BenchmarkEndOfMany(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b, newClient())
		w.ledger.ObserveNode(ledger.NodeObservation{Name: "n1", Allocatable: request(1 << 40).Amounts})
		w.nodes["n1"] = Node{Name: "n1"}
		const count = 10_000
		w.c.mu.Lock()
		for i := range count {
			rsv := newReservation(fmt.Sprintf("r%d", i), time.Minute, slot("a", "n1", 10))
			rsv.Spec.Slots[0].Requests["pods"] = rsv.Spec.Slots[0].Requests["cpu"]
			rsv.Status.Phase = v1alpha1.ReservationAvailable
			w.c.meet(rsv)
		}
		w.c.mu.Unlock()
		w.c.restoreAll()
		require.Equal(b, count, w.ledger.Stats().Holds)
		b.StartTimer()
		w.ledger.Expire(time.Now().Add(time.Hour))
		for key := range w.c.records {
			require.NotNil(b, w.c.toWrite(key))
		}
	}
}
