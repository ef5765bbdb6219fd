package cluster

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/background"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// catchUps keeps the first revision that OnCatchUp was told since it was last asked for.
func catchUps(c *Cache) *atomic.Uint64 {
	var since atomic.Uint64
	c.options.OnCatchUp = func(revision uint64) { since.CompareAndSwap(0, revision) }
	return &since
}

// The first full state of a kind is no news to anybody, as a later one is.
func TestFirstStateIsNoCatchUp(t *testing.T) {
	f, told := newFixture(nil, nil), 0
	f.options.OnCatchUp = func(uint64) { told++ }
	require.NoError(t, f.nodeSink().Replace(nil, "1"))
	require.NoError(t, f.podSink().Replace(nil, "1"))
	assert.Zero(t, told)
	require.NoError(t, f.podSink().Replace(nil, "2"))
	assert.Equal(t, 1, told)
}

// Others may know for long what a list after a gap shows.
func TestCatchUpAfterAGap(t *testing.T) {
	cases := map[string]func(f *fixture){
		"pods":  func(f *fixture) { f.podServer.gap(20) },
		"nodes": func(f *fixture) { f.nodeServer.gap(20, aNode("n1", 19, "8")) },
	}
	bubble.Each(t, cases, func(t *testing.T, gap func(f *fixture)) {
		f := newFixture(objects(aPod("a", 1, on("n1"))), objects(aNode("n1", 1, "4")))
		f.connect(true) // the watch after the list tells later
		since := catchUps(f.Cache)
		defer background.Run(t, f.Run)()
		pass(time.Second)
		before := f.ledger.Revision()
		since.Store(0)
		gap(f)
		pass(time.Minute)
		assert.Equal(t, before, since.Load())
		assert.Greater(t, f.ledger.Revision(), before)
	})
}

func TestCatchUpAfterARepair(t *testing.T) {
	w := newWorld(t)
	since := catchUps(w.Cache)
	w.nextLook(t, false)
	assert.Zero(t, since.Load())
	before := w.decides.Revision()
	w.decides.ObserveNode(ledger.NodeObservation{Name: "n1"}) // it offers nothing
	w.nextLook(t, false)
	w.nextLook(t, false)
	assert.Equal(t, before+1, since.Load())
	assert.Greater(t, w.decides.Revision(), before+1)
}

func TestCatchUpWhenAWatchBegins(t *testing.T) {
	c := newCache()
	for name, source := range map[string]cache.ListerWatcher{
		"pods":  c.podWatch.ListerWatcher,
		"nodes": c.nodeWatch.ListerWatcher,
	} {
		t.Run(name, func(t *testing.T) {
			since := catchUps(c)
			w, err := cache.ToListerWatcherWithContext(source).WatchWithContext(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			w.Stop()
			assert.EqualValues(t, 7, since.Load())
		})
	}
}
