package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// A look at all nodes at once is possible where the answer is about room alone, and few
// nodes refuse.
func TestRefusals(t *testing.T) {
	l := ledger.New(ledger.Options{})
	for i := range 4 {
		l.ObserveNode(offer(nodeName(i), 4000, 16<<30, 110))
	}
	l.ObserveNode(ledger.NodeObservation{Name: "cordoned", Unschedulable: true})
	l.ObserveNode(offer("gone", 4000, 16<<30, 110))
	l.RemoveNode("gone")
	l.ObservePod(ledger.PodObservation{Pod: podRef("large"), Node: nodeName(1), Request: request(3000, 1<<30)})
	ask := ledger.Placement{Pod: podRef("p"), Request: request(2000, 1<<30)}

	refused, nodes, ok := l.Refusals(&ask, 2)
	assert.True(t, ok)
	assert.Equal(t, 5, nodes)
	assert.Equal(t, map[string]ledger.Reason{
		nodeName(1): ledger.InsufficientResource, "cordoned": ledger.NodeUnschedulable,
	}, refused)
	_, _, ok = l.Refusals(&ask, 1)
	assert.False(t, ok, "too many")

	claimed := ask
	claimed.Node = nodeName(0)
	l.Reserve(ledger.NewPlan([]ledger.Placement{claimed}, ledger.AllOrNothing, time.Unix(60, 0)), time.Unix(0, 0))
	_, _, ok = l.Refusals(&ask, 9)
	assert.False(t, ok, "it has a claim")

	l.RemovePod(ask.Pod, 1)
	_, _, ok = l.Refusals(&ask, 9)
	assert.False(t, ok, "it is gone")

	next := ledger.Placement{Pod: podRef("next"), Request: request(1000, 1<<30)}
	hold := ledger.Hold{
		Ref: ledger.HoldRef{Namespace: next.Pod.Namespace, Name: "r", Slot: "s"}, Node: nodeName(2),
		Request: request(1000, 1<<30), Policy: ledger.Once,
	}
	l.Reserve(ledger.Plan{Slots: []ledger.Hold{hold}}, time.Unix(0, 0))
	_, _, ok = l.Refusals(&next, 9)
	assert.True(t, ok, "the room is for others")
	next.Holds = []ledger.HoldRef{hold.Ref}
	_, _, ok = l.Refusals(&next, 9)
	assert.False(t, ok, "there is room kept for it")
}

func BenchmarkRefusals(b *testing.B) {
	l := fullCluster(b)
	pods := newcomers(1 << 10)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, nodes, ok := l.Refusals(&pods[i%len(pods)], 512); !ok || nodes != benchNodes {
			b.Fatal(fmt.Sprint(nodes, ok))
		}
	}
}
