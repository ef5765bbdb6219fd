package requeue

import (
	"cmp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// What becomes free, and for whom, wakes the pods that wait for it, once, and nobody else.
func TestWhatWakesPods(t *testing.T) {
	type testCase struct {
		before func(w *world)
		wait   time.Duration // before the event; a minute where it is none: long after, it is no race with an event
		event  func(w *world)
		within time.Duration // of the event the pods are woken
		woken  []string
	}
	holder := func(w *world) *cluster.Pod { return w.pod("holder", "4", 0) }
	bind := func(w *world, p *cluster.Pod, slots ...ledger.SlotRef) {
		placement := p.Placement("a")
		placement.Slots = slots
		_, rejection := w.ledger.StartBind(&placement, time.Now())
		require.Nil(w.t, rejection)
	}
	held := func(hold func(w *world)) func(w *world) {
		return func(w *world) {
			w.observeBound(w.pod("filler", "2", 0), "b")
			hold(w)
			w.refuse(w.pod("waiting", "3", 0))
		}
	}
	reserved := held(func(w *world) { w.reserve(holder(w), "a", time.Hour) })
	boundFor := func(w *world) { // a pod that is bound, which schedulers see themselves
		w.observeBound(w.pod("filler", "4", 0), "b")
		w.observeBound(holder(w), "a")
		w.refuse(w.pod("waiting", "1", 0), "a")
	}
	goes := func(w *world) { w.ledger.RemovePod(holder(w).Ref, 0) }
	own := func(w *world) { // kept in memory, which keeps the pod from all other nodes
		w.reserve(w.pod("p", "4", 0), "a", time.Hour)
		w.observeBound(w.pod("filler", "1", 0), "b")
		w.refuse(w.pod("p", "4", 0), "a", "b")
		w.refuse(w.pod("other", "4", 0), "a", "b")
	}
	limit := func(w *world, cpu int64) {
		w.ledger.SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{"default": {
			Use: []resources.Amount{{Column: resources.CPU, Value: cpu}},
		}})
		w.LimitsChanged()
	}
	const gpu = "example.com/gpu"
	waiting := []string{"waiting"}
	tests := map[string]testCase{
		"unreserved": {before: reserved, event: func(w *world) { w.unreserve(holder(w), "a") }, woken: waiting},
		"expired": {
			before: reserved, event: func(w *world) { w.ledger.Expire(time.Now().Add(time.Hour)) }, woken: waiting,
		},
		"bind failed": {
			before: held(func(w *world) { bind(w, holder(w)) }),
			event:  func(w *world) { w.ledger.BindFailed(holder(w).Ref, "a") }, woken: waiting,
		},
		"reserved pod deleted before it was bound": {before: reserved, event: goes, woken: waiting},
		"bound elsewhere": {
			before: reserved, event: func(w *world) { w.observeBound(holder(w), "b") }, woken: waiting,
		},
		"a bind failed that used a slot": {before: func(w *world) {
			w.match("waiting", "holder")
			w.keep("a", 4000)
			bind(w, holder(w), testSlot)
			w.observeBound(w.pod("filler", "4", 0), "b")
			w.refuse(w.pod("waiting", "4", 0))
			w.refuse(w.pod("stranger", "4", 0))
		}, event: func(w *world) { w.ledger.BindFailed(holder(w).Ref, "a") }, woken: waiting},
		// It becomes known who may use a slot after the slot is: by then the pods have been refused.
		"a slot is matched later": {
			before: func(w *world) {
				w.keep("a", 3000)
				for name, cpu := range map[string]string{"waiting": "3", "too-large": "5", "stranger": "3"} {
					w.refuse(w.pod(name, cpu, 0), "a")
				}
			},
			event: func(w *world) {
				w.match("waiting", "too-large")
				w.Matched("elsewhere")
				advance(time.Minute)
				assert.Empty(w.t, w.api.names(), "matching never crosses namespaces")
				w.Matched("default")
			},
			woken: waiting,
		},
		"a nomination lapses": {before: func(w *world) {
			p, waits := w.pod("holder", "4", 10), w.pod("waiting", "1", 0)
			w.observeBound(w.pod("low", "2", 0), "a")
			nominated := p.Placement("a")
			require.True(w.t, w.ledger.Nominate(&nominated, time.Now().Add(time.Hour)))
			w.refuse(waits, "a")
		}, event: func(w *world) { w.ledger.RemovePod(holder(w).Ref, 2) }, woken: waiting},
		"its own node is gone": {before: own, event: func(w *world) { w.ledger.RemoveNode("a") }, woken: []string{"p"}},
		"its own node is full": {before: func(w *world) {
			own(w)
			w.observeBound(w.pod("unasked", "4", 0), "a")
		}, event: func(w *world) { w.unreserve(w.pod("p", "4", 0), "a") }, woken: []string{"p"}},
		// A pod's deletion reaches kube-scheduler by its own watch: only pods that were refused just before the ledger knew
		// of it may have asked too early.
		"a bound pod goes": {
			before: func(w *world) {
				boundFor(w)
				advance(raceWindow + time.Second)
				w.refuse(w.pod("too-early", "1", 0), "a")
				w.refuse(w.pod("asks-again", "1", 0), "a")
			},
			wait: raceWindow / 2,
			event: func(w *world) {
				goes(w)
				advance(announcedDelay / 2)
				assert.Empty(w.t, w.api.names(), "schedulers hear of it themselves and may act first")
				w.refuse(w.pod("asks-again", "1", 0), "a")
			},
			within: time.Minute, woken: []string{"too-early"},
		},
		// What the ledger receives late is news, however long ago the pod was refused.
		"a bound pod goes, by a slow watch": {
			before: boundFor, wait: 7500 * time.Millisecond, event: goes, within: announcedDelay, woken: waiting,
		},
		"a bound pod goes while the watch is broken": {before: boundFor, event: func(w *world) {
			w.CatchUp(w.ledger.Revision())
			advance(catchUp - time.Second)
			goes(w)
		}, within: announcedDelay, woken: waiting},
		"a list tells that a bound pod went": {before: boundFor, event: func(w *world) {
			since := w.ledger.Revision()
			goes(w)
			synctest.Wait()
			w.CatchUp(since)
		}, within: announcedDelay, woken: waiting},
		"a resource is offered that none had": {
			before: func(w *world) { w.refuse(w.pod("waiting", "1", 0, gpu), "b") },
			wait:   100 * time.Millisecond,
			event: func(w *world) {
				column, ok := w.ledger.Table().Offer(gpu)
				require.True(w.t, ok)
				w.ledger.ObserveNode(ledger.NodeObservation{Name: "b", Allocatable: []resources.Amount{
					{Column: resources.CPU, Value: 4000}, {Column: resources.Pods, Value: 110}, {Column: column, Value: 8},
				}})
			},
			within: announcedDelay, woken: waiting,
		},
		// Those are included whose refusal comes later.
		"DRA begins to give a resource": {
			before: func(w *world) {
				w.refuse(w.pod("waiting", "1", 0, gpu), "a", "b")
				w.refuse(w.pod("other", "1", 0, "example.com/other"), "a", "b")
			},
			event: func(w *world) {
				revision := w.ledger.Revision()
				placementtest.DRA(w.ledger, 4000, gpu, "a")
				w.Await(w.pod("late", "1", 0, gpu), revision, []string{"a", "b"}, false)
			},
			woken: []string{"waiting", "late"},
		},
		"a limit is raised for a pod that evictions did not help": {before: func(w *world) {
			limit(w, 3000)
			w.observeBound(w.pod("low", "2", 0), "a")
			w.observeBound(w.pod("filler", "4", 0), "b")
			p := w.pod("p", "4", 10)
			w.put(p)
			w.Await(p, w.ledger.Revision(), []string{"a"}, true)
			w.AwaitEvictions(p, w.ledger.Revision(), []string{"a"})
		}, event: func(w *world) { limit(w, 10_000) }, woken: []string{"p"}},
		// The claim is given back on a node that is of no use to the pod that waits for it.
		"a claim is given back elsewhere": {before: func(w *world) {
			w.addGPUs()
			w.reserveDevices(w.claimant("first", "c"), "a", time.Hour)
			cordoned := devices.Device{Name: "GPU-a", Resource: "nvidia.com/gpu", ID: "GPU-a", Unschedulable: true}
			w.ledger.ObserveDevices("a", []devices.Device{cordoned})
			w.refuse(w.claimant("waiting", "c"), "a", "b")
		}, event: func(w *world) { w.ledger.Expire(time.Now().Add(time.Hour)) }, woken: waiting},
		"a bound pod goes that has the claim": {before: func(w *world) {
			w.addGPUs()
			first := w.claimant("holder", "c")
			w.ledger.ObservePod(ledger.PodObservation{
				Pod: first.Ref, Node: "a", Request: first.Request, Devices: w.Question.Devices(first),
			})
			advance(time.Minute)
			w.refuse(w.claimant("waiting", "c"), "a", "b")
		}, wait: time.Millisecond, event: goes, within: announcedDelay, woken: waiting},
		"a device comes": {before: func(w *world) {
			w.addGPUs()
			w.ledger.ObserveDevices("b", nil)
			w.reserveDevices(w.claimant("first", "c"), "a", time.Hour)
			w.refuse(w.claimant("waiting", "d"), "a", "b")
		}, event: func(w *world) { placementtest.GPUs(w.ledger, "b", "GPU-new") }, woken: waiting},
	}
	bubble.Each(t, tests, func(t *testing.T, tc testCase) {
		w := newWorld(t, "a", "b")
		tc.before(w)
		advance(cmp.Or(tc.wait, time.Minute))
		assert.Empty(t, w.api.names(), "nothing was freed yet")
		tc.event(w)
		advance(tc.within)
		assert.ElementsMatch(t, tc.woken, w.api.names())
		assert.Equal(t, len(tc.woken), w.count())
		advance(time.Minute)
		assert.Len(t, w.api.names(), len(tc.woken), "woken once, not again and again")
	})
}
