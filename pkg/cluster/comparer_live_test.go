package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/ledger"
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
	w.clock.Step(time.Minute)
	w.nextLook(t, false)
	assert.Empty(t, w.found())
	assert.Equal(t, "none", w.claimIs("x"), "the answer must not bring the pod back")
}

func TestCheckNow(t *testing.T) {
	w := newWorld(t)
	check := func() ([]Difference, error) {
		result := make(chan []Difference, 1)
		failed := make(chan error, 1)
		go func() {
			d, err := w.CheckNow(t.Context())
			result <- d
			failed <- err
		}()
		for {
			select {
			case d := <-result:
				return d, <-failed
			default:
				if w.clock.HasWaiters() {
					w.clock.Step(time.Second)
				}
			}
		}
	}
	differences, err := check()
	require.NoError(t, err)
	assert.Empty(t, differences)

	w.l().RemovePod(aRef("a"), 0)                                                  // lost
	w.deleteLive(t, "b")                                                           // not told of
	w.bindInFlight(t, aPod("w", 12), "n2")                                         // under way
	w.create(t, aPod("x", 50, on("n2")))                                           // not told of
	w.l().ObserveNode(newNodeRecord(w.table, aNode("n2", 1, "9")).NodeObservation) // wrong
	differences, err = check()
	require.NoError(t, err)
	kinds := map[string]Kind{}
	for _, d := range differences {
		assert.True(t, d.Repaired, d)
		kinds[d.Pod.Name+d.Node] = d.Kind
	}
	assert.Equal(t, map[string]Kind{"an1": MissingClaim, "bn1": StaleClaim, "xn2": MissingClaim, "n2": WrongNodeAmount}, kinds)
	assert.Equal(t, map[Kind]int{MissingClaim: 2, StaleClaim: 1, WrongNodeAmount: 1}, w.found())

	differences, err = check()
	require.NoError(t, err)
	assert.Empty(t, differences)
	assert.Equal(t, "Binding n2", w.claimIs("w"))
	assert.Empty(t, w.found())
}

func TestCheckNowNeedsASyncedCacheAndAnAPIServer(t *testing.T) {
	unsynced := newFixture(nil, nil)
	c := NewComparer(unsynced.Cache, fake.NewClientset(), ComparerOptions{})
	_, err := c.CheckNow(t.Context())
	assert.ErrorContains(t, err, "not synced")

	w := newWorld(t)
	w.live.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("etcd is down")
	})
	_, err = w.CheckNow(t.Context())
	assert.ErrorContains(t, err, "etcd is down")

	w = newWorld(t)
	w.deleteLive(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	w.live.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return false, nil, nil
	})
	_, err = w.CheckNow(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestALookThatCannotListStillSettlesWhatTheCacheShows(t *testing.T) {
	w := newWorld(t)
	w.live.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("etcd is down")
	})
	w.l().RemoveNode("n2")
	assert.ErrorContains(t, w.look(t.Context(), true), "etcd is down")
	assert.ErrorContains(t, w.look(t.Context(), true), "etcd is down")
	assert.Equal(t, map[Kind]int{MissingNode: 1}, w.found())
}

func TestSuspicionsWaitWhereTheAPIServerIsAskedTooMuchOrDoesNotAnswer(t *testing.T) {
	w := newWorld(t)
	w.Comparer.options.MaxLookups = 2
	for i := range 5 {
		w.confirmed(t, aPod(fmt.Sprintf("ghost%d", i), 25), "n2")
	}
	failing := true
	w.live.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if failing {
			return true, nil, errors.New("etcd is down")
		}
		return false, nil, nil
	})
	w.nextLook(t, false)
	w.clock.Step(time.Minute)
	assert.ErrorContains(t, w.look(t.Context(), false), "etcd is down")
	assert.Empty(t, w.found())
	failing = false
	for _, want := range []int{2, 2, 1} {
		w.nextLook(t, false)
		assert.Equal(t, map[Kind]int{StaleClaim: want}, w.found())
	}
	w.nextLook(t, false)
	assert.Empty(t, w.found())
}

func TestLiveListsArePaged(t *testing.T) {
	w := newWorld(t)
	var limits []int64
	pods := []*v1.Pod{aPod("a", 10, on("n1")), aPod("b", 11, on("n1")), aPod("w", 12)}
	w.live.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o := action.(clienttesting.ListActionImpl).ListOptions
		limits = append(limits, o.Limit)
		i, _ := strconv.Atoi(o.Continue)
		list := &v1.PodList{Items: []v1.Pod{*pods[i]}}
		if i+1 < len(pods) {
			list.Continue = strconv.Itoa(i + 1)
		}
		return true, list, nil
	})
	w.Comparer.options.PageSize = 1
	differences, err := w.CheckNow(t.Context())
	require.NoError(t, err)
	assert.Empty(t, differences)
	assert.Equal(t, []int64{1, 1, 1}, limits)
}

func TestOnlyTheFirstDifferencesAreLoggedOneByOne(t *testing.T) {
	w := newWorld(t)
	for i := range 200 {
		w.l().ObserveNode(newNodeRecord(w.table, aNode(fmt.Sprintf("ghost%d", i), 1, "1")).NodeObservation)
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
		c := newCache(ledger.New(ledger.Options{}), Options{Logger: quiet()})
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
		require.NoError(t, podSink{c}.Replace(nil, "1"))
		require.NoError(t, nodeSink{c}.Replace(nil, "1"))
		pass(10 * time.Minute)
		assert.Equal(t, 11, looks)
		assert.Equal(t, 1, lists)
		stop()
		pass(time.Hour)
		assert.Equal(t, 11, looks)
	})
}

func TestDiagnosePod(t *testing.T) {
	request := Compact(ledger.New(ledger.Options{}).Table(), aPod("p", 1)).Request
	claim := func(state ledger.State) *ledger.ClaimView {
		return &ledger.ClaimView{Pod: aRef("p"), Node: "n1", State: state, Request: request}
	}
	pod := func(node string, finished bool) *Pod {
		return &Pod{Ref: aRef("p"), Node: node, Finished: finished, Request: request}
	}
	byName := claim(ledger.Binding)
	byName.Pod.UID = ""
	tests := map[string]struct {
		claim *ledger.ClaimView
		pod   *Pod
		want  Kind
	}{
		"neither":                     {},
		"waiting, no claim":           {pod: pod("", false)},
		"finished, no claim":          {pod: pod("n1", true)},
		"bound, no claim":             {pod: pod("n1", false), want: MissingClaim},
		"no pod, binding":             {claim: claim(ledger.Binding), want: StaleClaim},
		"no pod, binding by name":     {claim: byName},
		"no pod, bound":               {claim: claim(ledger.Bound), want: StaleClaim},
		"waiting, binding":            {claim: claim(ledger.Binding), pod: pod("", false), want: StaleClaim},
		"waiting, bound":              {claim: claim(ledger.Bound), pod: pod("", false), want: StaleClaim},
		"bound elsewhere, bound here": {claim: claim(ledger.Bound), pod: pod("n2", false), want: WrongNode},
		"bound, bound":                {claim: claim(ledger.Bound), pod: pod("n1", false)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, diagnosePod(tt.claim, tt.pod))
		})
	}
}
