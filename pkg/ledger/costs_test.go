//go:build costs && unix

package ledger_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/costs"
)

// TestCosts is of the cluster of BenchmarkScale, of which the ledger has seen so many changes that its journal and its
// memory of gone pods are full.
func TestCosts(t *testing.T) {
	l := scaled()
	for i := range 40_000 {
		o := scalePod(i)
		o.Pod = podRef(fmt.Sprintf("gone-%d", i))
		l.ObservePod(o)
		l.RemovePod(o.Pod, 1)
	}
	pods := contenders(1 << 16) // more than are remembered when they are gone
	i := 0
	costs.Check(t, "life of a pod in the ledger", func() {
		p := &pods[i%len(pods)]
		i++
		if _, rejection := l.StartBind(p, start); rejection != nil {
			t.Fatal(rejection.Message())
		}
		l.Confirm(p.Pod, p.Node)
		l.RemovePod(p.Pod, 7)
	})
	asking := ledger.Placement{Request: request(1000, 4<<30)}
	costs.Check(t, "fit on all of 5000 nodes", func() { require.Equal(t, 5000, fitting(l, &asking)) })
}
