package cluster

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/test/background"
)

func TestTheCacheOvertakesALiveAnswer(t *testing.T) {
	w := newWorld(t)
	w.create(t, aPod("x", 50, on("n2")))
	w.live.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		// While the answer travels, the watch catches up and goes past it.
		w.podEvent(aPod("x", 50, on("n2")))
		w.podDeleted(aPod("x", 51, on("n2")))
		w.podEvent(aPod("x", 52, withUID("next")))
		return false, nil, nil
	})
	w.nextLook(t, true)
	w.at = w.at.Add(time.Minute)
	w.nextLook(t, false)
	assert.Empty(t, w.found())
	assert.Equal(t, "none", w.allocationIs("x"), "the answer must not bring the pod back")
}

func TestALookThatCannotListStillSettlesWhatTheCacheShows(t *testing.T) {
	w := newWorld(t)
	w.live.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("etcd is down")
	})
	w.decides.RemoveNode("n2")
	assert.ErrorContains(t, w.look(t.Context(), true), "etcd is down")
	assert.ErrorContains(t, w.look(t.Context(), true), "etcd is down")
	assert.Equal(t, map[Kind]int{MissingNode: 1}, w.found())
}

func TestSuspicionsWaitWhereTheAPIServerIsAskedTooMuchOrDoesNotAnswer(t *testing.T) {
	w := newWorld(t)
	for i := range maxLookups + 50 {
		w.decides.ObservePod(w.reader.Compact(aPod(fmt.Sprintf("ghost%d", i), 25, on("n2"))).Observation())
	}
	failing := true
	w.live.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if failing {
			return true, nil, errors.New("etcd is down")
		}
		return false, nil, nil
	})
	w.nextLook(t, false)
	w.at = w.at.Add(time.Minute)
	assert.ErrorContains(t, w.look(t.Context(), false), "etcd is down")
	assert.Empty(t, w.found())
	failing = false
	for _, want := range []int{maxLookups, 50} {
		w.nextLook(t, false)
		assert.Equal(t, map[Kind]int{StaleAllocation: want}, w.found())
	}
	w.nextLook(t, false)
	assert.Empty(t, w.found())
}

func TestOnlyTheFirstDifferencesAreLoggedOneByOne(t *testing.T) {
	w := newWorld(t)
	for i := range 200 {
		w.decides.ObserveNode(*compactNode(w.reader.Table, aNode(fmt.Sprintf("ghost%d", i), 1, "1")).observation())
	}
	w.nextLook(t, false)
	w.log.Reset()
	w.nextLook(t, false)
	assert.Equal(t, map[Kind]int{StaleNode: 200}, w.found())
	assert.Len(t, w.log.AllEntries(), maxLogged+1)
	assert.Equal(t, 150, w.log.LastEntry().Data["more"])
}

func TestComparerLooksOnItsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks, lists int
		client := fake.NewClientset()
		client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			lists++
			return false, nil, nil
		})
		c := newCache()
		comparer := NewComparer(c, client, ComparerOptions{
			Interval: time.Minute, LiveInterval: 10*time.Minute + time.Second, Logger: quiet(),
			OnDrift: func(kind Kind, _ int) {
				if kind == StaleNode {
					looks++
				}
			},
		})
		stop := background.Run(t, comparer.Run)
		pass(5*time.Minute + time.Second)
		assert.Zero(t, looks, "nothing to compare with before the cache is synced")
		require.NoError(t, c.podSink().Replace(nil, "1"))
		require.NoError(t, c.nodeSink().Replace(nil, "1"))
		pass(10 * time.Minute)
		assert.Equal(t, 11, looks)
		assert.Equal(t, 1, lists)
		stop()
		pass(time.Hour)
		assert.Equal(t, 11, looks)
	})
}

// Of a pod that was made, bound and deleted while no watch was there no list shows anything.
func TestComparerLooksAfterAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Comparer.options.Interval, w.Comparer.options.LiveInterval, w.now = 24*time.Hour, 24*time.Hour, time.Now
		defer background.Run(t, w.Comparer.Run)()
		w.confirmed(t, aPod("gone", 25), "n2")
		pass(time.Minute)
		assert.Equal(t, "Bound n2", w.allocationIs("gone"))
		var all []any
		for _, p := range w.allPods() {
			all = append(all, p)
		}
		require.NoError(t, w.podSink().Replace(all, "30"))
		pass(grace + 2*time.Second)
		assert.Equal(t, "none", w.allocationIs("gone"))
	})
}

// A watch that is behind brings a pod which the comparer has found gone, and then that it was deleted: its capacity was
// given back, and may be another's by now.
func TestWhatIsGoneDoesNotComeBack(t *testing.T) {
	w := newWorld(t)
	w.Cache.options.Keep = (&keeper{}).Keep
	gone := aPod("gone", 25, on("n2"), keepCapacity)
	w.confirmed(t, gone, "n2")
	w.nextLook(t, false)
	w.nextLook(t, false)
	require.Equal(t, map[Kind]int{StaleAllocation: 1}, w.found())
	w.podEvent(aPod("gone", 26, on("n2"), keepCapacity))
	assert.Equal(t, "none", w.allocationIs("gone"))
	w.podDeleted(aPod("gone", 27, on("n2"), keepCapacity, terminating))
	_, slots := w.used()
	assert.Zero(t, slots, "there may be no capacity for it any more")
}
