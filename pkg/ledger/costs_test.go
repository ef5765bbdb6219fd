//go:build costs && unix

package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/costs"
)

func TestCosts(t *testing.T) {
	l := fullCluster(t)
	pods := newcomers(1 << 16) // more than are remembered when they are gone
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
	costs.Check(t, "fit on all of 5000 nodes", func() {
		n := 0
		l.FitAll(&asking, func(_ string, v ledger.Verdict) bool {
			if v.Reason == ledger.Fits {
				n++
			}
			return true
		})
		require.Equal(t, benchNodes, n)
	})
}
