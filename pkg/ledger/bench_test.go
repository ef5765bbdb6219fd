package ledger_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// BenchmarkCrowdedNode shows that a pod's cost does not grow with the number of
// pods on its node: to ask, to start a bind, and to take it back.
func BenchmarkCrowdedNode(b *testing.B) {
	for _, crowd := range []int{10, 50, 500} {
		for _, with := range []string{"plain", "hostPorts"} {
			b.Run(fmt.Sprintf("%dpods/%s", crowd, with), func(b *testing.B) {
				benchmarkCrowdedNode(b, crowd, with == "hostPorts")
			})
		}
	}
}

func benchmarkCrowdedNode(b *testing.B, crowd int, hostPorts bool) {
	ask := func(i int) *resources.Request {
		if hostPorts {
			return request(100, 1<<20, hostPort(int32(1000+i)))
		}
		return request(100, 1<<20)
	}
	l := ledger.New(ledger.Options{})
	l.ObserveNode(offer("node", 1_000_000, 1<<40, 1000))
	for i := range crowd {
		l.ObservePod(ledger.PodObservation{Pod: podRef(fmt.Sprintf("bound-%d", i)), Node: "node", Request: ask(i)})
	}
	p := ledger.Placement{Pod: podRef("new"), Node: "node", Request: ask(crowd)}
	names := []string{"node"}
	var verdicts []ledger.Verdict
	b.ReportAllocs()
	for b.Loop() {
		verdicts = l.AppendFit(verdicts[:0], &p, names)
		if _, rejection := l.StartBind(&p, start); rejection != nil {
			b.Fatal(rejection.Message())
		}
		l.BindFailed(p.Pod, p.Node)
	}
	require.Equal(b, ledger.Fits, verdicts[0].Reason)
}
