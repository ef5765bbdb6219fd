package requeue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/metricstest"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/background"
	"github.com/globalreserve/globalreserve/test/bubble"
)

func TestWakeupsOrderAndFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.wakes.SetBurst(1) // what comes at once has no order
		holder := w.pod("holder", "3", 0)
		w.observeBound(w.pod("filler", "1", 0), "a")
		w.reserve(holder, "a", time.Hour)
		w.refuse(w.pod("low", "1", -5))
		advance(time.Second)
		w.refuse(w.pod("middle-first", "1", 10))
		advance(time.Second)
		w.refuse(w.pod("middle-second", "1", 10))
		w.refuse(w.pod("high", "1", 1000))
		w.refuse(w.pod("too-large", "3500m", 2000))
		settled := w.pod("settled", "1", 5000)
		w.refuse(settled)
		w.Settled(settled.Ref.UID)

		w.unreserve(holder, "a")
		advance(time.Second)
		assert.Equal(t, []string{"high", "middle-first", "middle-second", "low"}, w.api.names())
	})
}

// A wake-up was in vain where the pod is refused all nodes again.
func TestWakeupsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		holder, bound, again := w.pod("holder", "4", 0), w.pod("bound", "1", 0), w.pod("again", "1", 0)
		refuse := func(pod *cluster.Pod) {
			w.Refused(&Refusal{Rejection: ledger.Rejection{Pod: pod.Ref}})
			w.refuse(pod)
		}
		w.reserve(holder, "a", time.Hour)
		refuse(bound)
		refuse(again)
		w.unreserve(holder, "a")
		advance(time.Second)
		assert.Equal(t, 2, w.count())
		w.refuse(bound) // some nodes, not all
		w.Settled(bound.Ref.UID)
		for range 2 {
			refuse(again)
		}
		assert.Equal(t, 1, metricstest.Counted(t, w.Metrics, "wakeups_in_vain_total"), "again, once")
	})
}

// Who asked about a pod last is known for as long as it waits.
func TestWhoAskedAboutPodThatWaits(t *testing.T) {
	w := makeWorld(t, "a")
	pod := w.pod("p", "1", 0)
	assert.Empty(t, w.LastCaller(pod.Ref.UID))
	for _, caller := range []string{"first", "second"} {
		w.refuse(pod.WithCaller(caller))
		assert.Equal(t, caller, w.LastCaller(pod.Ref.UID))
	}
	w.Refused(&Refusal{Caller: "by the webhook", Path: Admission, Rejection: ledger.Rejection{Pod: pod.Ref}})
	assert.Equal(t, "second", w.LastCaller(pod.Ref.UID), "it is woken for that one")
	w.woken(w.attemptOf(pod.Ref.UID), false)
	assert.Equal(t, "by the webhook", w.LastCaller(pod.Ref.UID))
	w.Settled(pod.Ref.UID)
	assert.Empty(t, w.LastCaller(pod.Ref.UID))
}

// The capacity was freed, or the slot was placed, between the decision of a filter call and its report.
func TestWakeupsRefusedWithOldView(t *testing.T) {
	bubble.Each(t, map[string]bool{"freed": true, "a slot was placed": false}, func(t *testing.T, freed bool) {
		w := newWorld(t, "a")
		w.match("waiting")
		holder := w.pod("holder", "4", 0)
		if freed {
			w.reserve(holder, "a", time.Hour)
		}
		decidedAt := w.ledger.Revision()
		if freed {
			w.unreserve(holder, "a")
		} else {
			w.keep("a", 4000)
		}
		synctest.Wait()
		w.Await(w.pod("waiting", "4", 0), decidedAt, nil, false)
		synctest.Wait()
		assert.Equal(t, []string{"waiting"}, w.api.names())
	})
}

func TestWakeupsPatchFailures(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	away, conflict := errors.New("refused"), apierrors.NewConflict(pods, "waiting", errors.New("modified"))
	type testCase struct {
		errs  []error // of the first tries; then success
		known string  // the UID of the pod of that name, "" where there is none
		want  int     // wake-ups in the end
		took  time.Duration
	}
	cases := map[string]testCase{
		"API server away for a time":        {errs: []error{away, away}, want: 1, took: 3 * firstPause},
		"pod deleted meanwhile":             {errs: []error{apierrors.NewNotFound(pods, "waiting")}},
		"conflict with another writer":      {errs: []error{conflict}, known: "uid-waiting", want: 1, took: firstPause},
		"conflict with another of its name": {errs: []error{conflict}, known: "another"},
		"conflict without a pod":            {errs: []error{conflict}},
	}
	bubble.Each(t, cases, func(t *testing.T, tc testCase) {
		w := newWorld(t, "a")
		if tc.known != "" {
			known := w.pod("waiting", "1", 0)
			known.Ref.UID = types.UID(tc.known)
			w.put(known)
		}
		errs := tc.errs
		w.api.answer = func(context.Context, ledger.PodRef) error {
			if len(errs) == 0 {
				return nil
			}
			err := errs[0]
			errs = errs[1:]
			return err
		}
		holder := w.pod("holder", "4", 0)
		w.reserve(holder, "a", time.Hour)
		w.refuse(w.pod("waiting", "1", 0))
		w.unreserve(holder, "a")
		advance(tc.took)
		assert.Len(t, w.api.names(), tc.want)
		advance(time.Minute)
		assert.Len(t, w.api.names(), tc.want, "not tried again")
	})
}

// When more happened than the journal keeps, nobody is forgotten.
func TestWakeupsAfterJournalOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		before := w.ledger.Revision()
		w.refuse(w.pod("waiting", "3", 0))
		w.refuse(w.pod("elsewhere", "3", 0), "b")
		w.refuse(w.pod("too-large", "5", 0))
		w.observeBound(w.pod("filler", "2", 0), "b")
		for i := range 40_000 {
			if i%1000 == 0 {
				synctest.Wait() // the loop keeps up
			}
			w.ledger.ObserveNode(ledger.NodeObservation{Name: "c", Unschedulable: w.ledger.Revision()%2 == 0})
		}
		advance(time.Minute)
		require.Empty(t, w.api.names())
		w.CatchUp(before)
		synctest.Wait()
		assert.ElementsMatch(t, []string{"waiting", "elsewhere"}, w.api.names())
	})
}

// A pod that a gate refuses gets an Event, and is woken when the gate opens again and not for what becomes free before,
// also where the gate closed after its refusal.
func TestGateOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		set := func(p *policy.Policy) {
			w.policy.Set(p)
			w.LimitsChanged()
			advance(time.Minute)
		}
		free := func() {
			w.ledger.ObserveNode(ledger.NodeObservation{Name: "a", Unschedulable: true})
			placementtest.Nodes(w.ledger, 64_000, "a")
			advance(time.Minute)
		}
		asked := func(name, cpu string) *cluster.Pod { return w.pod(name, cpu, 0).WithCaller("batch") }
		before := asked("before", "8")
		w.Await(before, w.ledger.Revision(), []string{"a", "b"}, false)
		set(gatestest.Limited(before.Scheduler))
		after := asked("after", "1")
		w.AwaitGate(after, w.ledger.Revision(), []string{"a", "b"})
		require.NotEmpty(t, w.recorder.Events)
		assert.Contains(t, <-w.recorder.Events, `Warning Refused caller "batch" may not act for scheduler`)
		w.AwaitGate(asked("preemptor", "99"), w.ledger.Revision(), []string{"a", "b"})
		free()
		assert.Empty(t, w.api.names(), "there is capacity, for others")
		set(gatestest.Limited(before.Scheduler, "another"))
		w.Wake(asked("promised", "1"))
		advance(time.Minute)
		assert.Empty(t, w.api.names(), "it is another one that is listed")
		set(gatestest.Limited(before.Scheduler, "batch"))
		assert.ElementsMatch(t, []string{"before", "after", "promised", "preemptor"}, w.api.names())
	})
}

// A caller that a gate refuses does not keep a pod from being woken for the caller that it waits for.
func TestGateForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		pod := w.pod("p", "8", 0)
		w.Await(pod.WithCaller("alice"), w.ledger.Revision(), []string{"a"}, false)
		w.policy.Set(gatestest.Limited(pod.Scheduler, "alice"))
		w.LimitsChanged()
		w.AwaitGate(pod.WithCaller("bob"), w.ledger.Revision(), []string{"a"})
		assert.Empty(t, w.recorder.Events)
		assert.Equal(t, "alice", w.LastCaller(pod.Ref.UID))
		placementtest.Nodes(w.ledger, 64_000, "a")
		advance(time.Minute)
		assert.Equal(t, []string{"p"}, w.api.names())

		w.policy.Set(gatestest.Limited(pod.Scheduler))
		for _, caller := range []string{"alice", "bob"} { // the scheduler has another name by now
			w.AwaitGate(pod.WithCaller(caller), w.ledger.Revision(), []string{"a"})
			assert.Equal(t, caller, w.LastCaller(pod.Ref.UID))
		}
		w.policy.Set(gatestest.Limited(pod.Scheduler, "bob"))
		w.LimitsChanged()
		advance(time.Minute)
		assert.Equal(t, []string{"p", "p"}, w.api.names())
	})
}

// Nor does a caller wait in vain for an attempt that is over in the same moment.
func TestGateWhileAnotherIsWoken(t *testing.T) {
	w := makeWorld(t, "a")
	pod := w.pod("p", "1", 0)
	w.policy.Set(gatestest.Limited(pod.Scheduler, "alice"))
	w.Wake(pod.WithCaller("alice"))
	a, _, _ := w.take()
	require.NotNil(t, a)
	w.AwaitGate(pod.WithCaller("bob"), w.ledger.Revision(), []string{"a"})
	w.woken(a, false)
	assert.Equal(t, "bob", w.LastCaller(pod.Ref.UID))
}

// A pod that was over a limit is woken when the limit is raised, also one of a scheduler in the same process, and not
// before.
func TestLimitIsRaised(t *testing.T) {
	bubble.Each(t, map[string]bool{"its own pod": false, "one of a host": true}, func(t *testing.T, hosted bool) {
		w := newWorld(t, "a")
		theirs := w
		if hosted {
			theirs = inProcess(t, "a")
			w.Host("theirs", theirs.Pods)
		}
		limit := func(cpu int64) {
			theirs.ledger.Observer().SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{
				"default": {Use: []resources.Amount{{Column: resources.CPU, Value: cpu}}},
			})
			w.LimitsChanged()
			advance(time.Minute)
		}
		limit(500)
		theirs.Await(theirs.pod("p", "2", 0), theirs.ledger.Revision(), []string{"a"}, true)
		theirs.Await(theirs.pod("large", "8", 0), theirs.ledger.Revision(), []string{"a"}, true)
		limit(1000)
		assert.Empty(t, theirs.api.names())
		limit(2000)
		assert.Equal(t, []string{"p"}, theirs.api.names())
		limit(100_000)
		woken := []string{"p"}
		if hosted {
			woken = append(woken, "large") // its scheduler says that no node is as large
		}
		assert.Equal(t, woken, theirs.api.names())
		theirs.Await(theirs.pod("late", "2", 0), theirs.ledger.Revision(), []string{"a"}, true)
		advance(time.Minute)
		assert.Equal(t, append(woken, "late"), theirs.api.names(), "the limit was raised before its refusal was told")
	})
}

// inProcess is newWorld for a scheduler in the same process.
func inProcess(t *testing.T, nodes ...string) *world {
	w := makeWorld(t, nodes...)
	w.Nominator = nil
	w.Stop = background.Run(t, w.Run)
	return w
}

// A pod that no limit bars any more may preempt: its scheduler, in the same process, tries it where it fits nowhere,
// as long as others have not used up the limit first.
func TestLetInToPreempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inProcess(t, "a")
		w.wakes = rate.NewLimiter(rate.Every(time.Minute), 1)
		limit := func(cpu int64) {
			w.ledger.Observer().SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{
				"default": {Use: []resources.Amount{{Column: resources.CPU, Value: cpu}}},
			})
			w.LimitsChanged()
		}
		limit(3000)
		w.observeBound(w.pod("low", "3", 0), "a")
		pods := []*cluster.Pod{w.pod("p-0", "2", 10), w.pod("p-1", "2", 10), w.pod("p-2", "2", 10)}
		for _, p := range pods {
			w.Await(p, w.ledger.Revision(), []string{"a"}, true)
			advance(time.Second)
		}
		limit(5000)
		advance(time.Second)
		assert.Equal(t, []string{"p-0"}, w.api.names(), "p-1 waits for the limit on wake-ups")
		w.observeBound(pods[0], "a") // beside low, which ends
		advance(time.Hour)
		assert.Equal(t, []string{"p-0", "p-1"}, w.api.names(), "the limit is used up again")
		limit(7000)
		advance(time.Hour)
		assert.Equal(t, []string{"p-0", "p-1", "p-2"}, w.api.names())
	})
}
