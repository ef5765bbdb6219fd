package reservations

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// BenchmarkChoose chooses the nodes of one gang on 5,000 nodes.
func BenchmarkChoose(b *testing.B) {
	for _, slots := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			l := ledger.New(ledger.Options{})
			w := &world{t: b, ledger: l, nodes: map[string]Node{}, read: true}
			c := New(Options{Ledger: arbiter.NewGatedLedger(l, steady.New(time.Now), func() string { return "" }), Client: newClient(), Node: w.Node})
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
				kept, err := convert.Slots(l.Table(), rsv)
				require.NoError(b, err)
				require.Nil(b, c.choose(l.Survey(), kept, rsv.Spec.Slots))
			}
		})
	}
}
