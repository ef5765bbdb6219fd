//go:build costs

package requeue

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
)

// What is remembered of 10,000 refusals stays below 32 MiB, however many there were, and refers to no request.
func TestMemoryIsBounded(t *testing.T) {
	var before, after runtime.MemStats
	l := quiet()
	runtime.GC()
	runtime.ReadMemStats(&before)
	for k := range 2 * maxLatest {
		r := refusal(k)
		r.Rejection.Pod.UID = types.UID(fmt.Sprint("uid-", k%maxLatest))
		body := strings.Repeat("x", 10_000) + "node"
		r.Rejection.Node, r.Message = body[10_000:], strings.Repeat("long", 1000)
		l.Refused(r)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d bytes for each of %d refusals, the pods that wait included", used/maxLatest, maxLatest)
	assert.Less(t, used, int64(32<<20))
	runtime.KeepAlive(l)
}

// TestReadingEventsCostsLittle: events are read after every change of the ledger, several times for
// each pod that is bound.
func TestReadingEventsCostsLittle(t *testing.T) {
	l := ledger.New(ledger.Options{})
	w := New(Options{Ledger: l.Reader, Gates: gatestest.Ledger(l).Gates, Question: placementtest.NewBuilder(l)})
	require.Zero(t, testing.AllocsPerRun(100, func() { w.takeAsked() }), "allocations for nothing new")
}

// TestLookingAtAttemptsCostsLittle has the largest number of pods wait while capacity is freed that none of them fits.
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
		w.loop.fresh.nodes["a"] = freedCapacity{revision: 2, unannounced: 2}
		w.lookAtAll()
	})
	require.Less(t, allocations, maxPods/100.)
}
