//go:build costs

package waiting

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
)

// TestReadingEventsCostsLittle: events are read after every change of the ledger, several times for
// each pod that is bound.
func TestReadingEventsCostsLittle(t *testing.T) {
	l := ledger.New(ledger.Options{})
	w := New(Options{Ledger: l.Reader, Gates: gatestest.Ledger(l).Gates, Question: placementtest.NewBuilder(l)})
	require.Zero(t, testing.AllocsPerRun(100, func() { w.readNew(w.Ledger.Revision()) }), "allocations for nothing new")
}

// TestLookingAtAttemptsCostsLittle has the largest number of pods wait while capacity is freed that none
// of them fits.
func TestLookingAtAttemptsCostsLittle(t *testing.T) {
	l := ledger.New(ledger.Options{})
	placementtest.Nodes(l, 0, "a")
	w := New(Options{Ledger: l.Reader, Gates: gatestest.Ledger(l).Gates, Question: placementtest.NewBuilder(l)})
	for i := range maxPods {
		uid := strconv.Itoa(i)
		ref := ledger.PodRef{Namespace: "ns", Name: uid, UID: types.UID(uid)}
		w.Await(&cluster.Pod{Ref: ref, Request: placementtest.Request(1000)}, 1, []string{"a"}, false)
	}
	allocations := testing.AllocsPerRun(5, func() {
		w.loop.fresh.nodes["a"] = freedCapacity{revision: 2, silent: 2}
		w.lookAtAll()
	})
	require.Less(t, allocations, maxPods/100.)
}
