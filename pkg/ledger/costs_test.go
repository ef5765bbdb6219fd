//go:build costs && unix

package ledger_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/costs"
)

const nodeCount = 5_000

// fullCluster returns a ledger of 5,000 nodes with 64 CPUs and 256 GiB each, on which 100,000 pods are bound; each node
// has capacity for some more. It has seen so many changes that its journal and its memory of gone pods are full.
func fullCluster() *ledger.Ledger {
	l := ledger.New(ledger.Options{})
	for i := range nodeCount {
		l.ObserveNode(offer(nodeName(i), 64_000, 256<<30, 110))
	}
	shared := request(2000, 8<<30)
	for i := range 100_000 {
		l.ObservePod(ledger.PodObservation{
			Pod: podRef(fmt.Sprintf("bound-%d", i)), Node: nodeName(i % nodeCount),
			Request: shared,
		})
	}
	for i := range 40_000 {
		pod := podRef(fmt.Sprintf("gone-%d", i))
		l.ObservePod(ledger.PodObservation{Pod: pod, Node: nodeName(i % nodeCount), Request: shared})
		l.RemovePod(pod, 1)
	}
	return l
}

// newcomers are pods to place, one after another, on nodes far apart. There are
// more of them than UIDs of gone pods are remembered.
func newcomers(count int) []ledger.Placement {
	placements := make([]ledger.Placement, count)
	r := request(1000, 4<<30)
	for i := range placements {
		placements[i] = ledger.Placement{
			Pod: podRef(fmt.Sprintf("new-%d", i)), Node: nodeName(i * 37 % nodeCount), Request: r,
			Scheduler: "default-scheduler",
		}
	}
	return placements
}

func TestCosts(t *testing.T) {
	l := fullCluster()
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
		require.Equal(t, nodeCount, n)
	})
}
