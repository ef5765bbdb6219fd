package decide

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics/metricstest"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// arbiter is one that shares the gangs of the world.
func (w *gangWorld) arbiter() *Arbiter { return &Arbiter{o: *w.o, gangs: w.gangKeeper} }

// see returns the views of all gangs by name.
func (w *gangWorld) see() map[string]reserver.Gang {
	views := map[string]reserver.Gang{}
	for _, v := range w.arbiter().Gangs(func(string) bool { return true }) {
		views[v.Name] = v
	}
	return views
}

// counts are the pods of a view.
func counts(v reserver.Gang) string {
	return fmt.Sprintf("%s: %d pending, %d kept, %d bound, %d finished", v.State, v.Pending, v.Kept, v.Bound, v.Finished)
}

// A gang goes through all its states, and each says since when, until when, and why.
func TestGangView(t *testing.T) {
	gangTest(t, 1, 3, func(w *gangWorld) {
		pods := w.gang("a", 3, 4, nil)
		v := w.see()["a"]
		assert.Equal(t, "Incomplete: 3 pending, 0 kept, 0 bound, 0 finished", counts(v))
		assert.Equal(t, "globalreserve gang ns/a needs at least 4 pods, and there are 3 that may be bound", v.Why)
		assert.Zero(t, v.WaitingSince)

		pods = append(pods, w.pod("a", "a-3", 4, nil))
		v = w.see()["a"]
		assert.Equal(t, "Waiting: 4 pending, 0 kept, 0 bound, 0 finished", counts(v))
		assert.Equal(t, "no scheduler has asked to bind a pod of it", v.Why)
		assert.Equal(t, "s", v.Scheduler)

		refused := time.Now().UTC()
		w.refusedAs(w.bind(pods[0], "n0"), ledger.GangUnplaced)
		<-time.After(time.Second)
		assert.Equal(t, ledger.GangUnplaced, w.advise(pods[1]))
		v = w.see()["a"]
		assert.Equal(t, "Waiting: 4 pending, 0 kept, 0 bound, 0 finished", counts(v))
		assert.Equal(t, refused, v.WaitingSince)
		assert.Contains(t, v.Why, "there is no capacity for it and the 3 others of the gang")

		w.watch()
		assert.Empty(t, w.woken())
		w.resize("n1", 1)
		w.watch()
		assert.Equal(t, []string{"a-1"}, w.woken(), "that filter has refused")
		started := time.Now().UTC()
		require.NoError(t, w.bind(pods[0], "n0"))
		v = w.see()["a"]
		assert.Equal(t, "Starting: 3 pending, 3 kept, 1 bound, 0 finished", counts(v))
		assert.Equal(t, started, v.HalfSince)
		assert.Equal(t, started.Add(90*time.Second), v.KeptUntil)
		assert.Zero(t, v.WaitingSince)
		left := "the server leaves pod ns/a-1 to its scheduler: redirecting is off for it (gangs.redirect, or refusals are " +
			"only warnings)"
		assert.Equal(t, left, v.Why)

		w.lapse(90 * time.Second)
		w.watch()
		v = w.see()["a"]
		assert.Equal(t, "Short: 3 pending, 0 kept, 1 bound, 0 finished", counts(v))
		assert.Equal(t, started, v.HalfSince)
		assert.Zero(t, v.KeptUntil)
		assert.Equal(t,
			"globalreserve gang ns/a has started and lacks 3 of the 4 pods it needs; no capacity is kept for them; "+left, v.Why)

		for k, node := range []string{"n0", "n1", "n0"} {
			require.NoError(t, w.bind(pods[k+1], node))
		}
		assert.Equal(t, "Whole: 0 pending, 0 kept, 4 bound, 0 finished", counts(w.see()["a"]))
		for _, pod := range pods {
			w.o.Pods.Put(&cluster.Pod{Ref: pod.Ref, Finished: true, Gang: pod.Gang})
		}
		assert.Equal(t, "Whole: 0 pending, 0 kept, 0 bound, 4 finished", counts(w.see()["a"]))
	})
}

// Of gangs that have a problem, and of namespaces that are not wanted.
func TestGangViews(t *testing.T) {
	gangTest(t, 1, 3, func(w *gangWorld) {
		elsewhere := func(p *v1.Pod) { p.Namespace = "elsewhere" }
		w.gang("b", 2, 2, nil)
		w.gang("wrong", 1, -1, nil)
		w.gang("a", 2, 2, elsewhere)
		w.gang("alone", 1, 1, nil)
		var names []string
		for _, v := range w.arbiter().Gangs(func(string) bool { return true }) {
			names = append(names, v.Namespace+"/"+v.Name)
		}
		assert.Equal(t, []string{"elsewhere/a", "ns/b", "ns/wrong"}, names)
		assert.Len(t, w.arbiter().Gangs(func(namespace string) bool { return namespace == "elsewhere" }), 1)
		v := w.see()["wrong"]
		assert.Equal(t, "Incomplete: 1 pending, 0 kept, 0 bound, 0 finished", counts(v))
		assert.Contains(t, v.Why, "gang-min'] is -1")
		assert.Zero(t, v.Minimum)
		assert.Equal(t, map[string]int{"Incomplete": 1, "Waiting": 2, "Starting": 0, "Short": 0, "Whole": 0},
			w.arbiter().CountGangs())
	})
}

// A server that does not decide counts no gangs: the one that does would count them again.
func TestGangsAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, undecided := newGangWorld(t, 1, 3), ""
		w.o.Ledger = gates.NewGatedLedger(w.ledger, w.o.Ledger.Clock, w.o.Ledger.Gates, func() string { return undecided })
		w.gang("a", 2, 2, nil)
		assert.Equal(t, 1, w.arbiter().CountGangs()["Waiting"])
		undecided = "another server decides"
		assert.Nil(t, w.arbiter().CountGangs())
	})
}

// The time that gangs are half is counted once, however often it is looked at, also of those that nobody looks at. A
// gang of which the last bind fails is half again from then on. While another server decides nobody counts here, and
// what has passed is not counted afterwards.
func TestHalfGangTime(t *testing.T) {
	gangTest(t, 2, 4, func(w *gangWorld) {
		a, b := w.gang("a", 3, 3, nil), w.gang("b", 2, 2, nil)
		half := func() time.Duration { return w.arbiter().HalfGangTime() }
		<-time.After(time.Second)
		require.NoError(t, w.bind(a[0], "n0"))
		<-time.After(3 * time.Second)
		w.watch()
		w.watch()
		assert.Equal(t, 3*time.Second, half())
		require.NoError(t, w.bind(b[0], "n1"))
		<-time.After(100 * time.Millisecond)
		require.NoError(t, w.bind(b[1], "n1"))
		assert.Equal(t, 3*time.Second+100*time.Millisecond, half(), "b, between two looks")
		<-time.After(900 * time.Millisecond)
		require.NoError(t, w.bind(a[1], "n0"))
		require.NoError(t, w.bind(a[2], "n1"))
		w.watch()
		assert.Equal(t, 4*time.Second+100*time.Millisecond, half())
		<-time.After(time.Minute)
		w.watch()
		assert.Equal(t, 4*time.Second+100*time.Millisecond, half(), "nothing is half")

		c := w.gang("c", 2, 2, nil)
		require.NoError(t, w.bind(c[0], "n0"))
		w.begin(c[1], "n0")
		<-time.After(time.Second)
		require.True(t, w.bindFailed(c[1].Ref, "n0"))
		<-time.After(time.Second)
		w.watch()
		assert.Equal(t, 5*time.Second+100*time.Millisecond, half())
		<-time.After(time.Hour)
		w.succeed()
		<-time.After(time.Second)
		w.watch()
		assert.Equal(t, 6*time.Second+100*time.Millisecond, half())
	})
}

// A refusal for a gang's sake is reported on the pod and counted; what other reasons there are is not about gangs.
func TestGangRefusalsAreTold(t *testing.T) {
	gangTest(t, 1, 3, func(w *gangWorld) {
		pods := w.gang("a", 4, 4, nil)
		w.refusedAs(w.bind(pods[0], "n0"), ledger.GangUnplaced)
		assert.Equal(t, ledger.GangUnplaced, w.advise(pods[1]))
		few := w.gang("few", 1, 2, nil)
		w.refusedAs(w.bind(few[0], "n0"), ledger.GangIncomplete)
		large := w.gang("large", 2, 2, ofCPUs(9))
		w.refusedAs(w.bind(large[0], "n0"), ledger.InsufficientResource)
		require.Len(t, w.told(), 3)
		assert.Contains(t, w.told()[0], "a-0 GangUnplaced: pod ns/a-0 fits node \"n0\"")
		assert.Contains(t, w.told()[1],
			"a-1 GangUnplaced: pod ns/a-1 is not bound without its gang: there is no capacity for it and the 3 others")
		assert.Contains(t, w.told()[2], "few-0 GangIncomplete: ")
		assert.Equal(t, 2, metricstest.Counted(t, w.o.Metrics, "gang_refusals_total", "GangUnplaced"))
		assert.Equal(t, 1, metricstest.Counted(t, w.o.Metrics, "gang_refusals_total", "GangIncomplete"))
		assert.Equal(t, 3, metricstest.Counted(t, w.o.Metrics, "gang_refusals_total"))
	})
}

// A gang that comes later does not get the name of one of another namespace.
func TestGangOfAnotherNamespaceIsNotNamed(t *testing.T) {
	gangTest(t, 2, 2, func(w *gangWorld) {
		filler, first, later := w.gang("f", 3, 3, nil), w.gang("secret", 3, 3, func(p *v1.Pod) { p.Namespace = "secret" }),
			w.gang("c", 3, 3, nil)
		require.NoError(t, w.bind(filler[0], "n0"))
		w.refusedAs(w.bind(first[0], "n1"), ledger.GangUnplaced)
		<-time.After(time.Second)
		w.finish(filler)
		err := w.bind(later[0], "n0")
		w.refusedAs(err, ledger.GangWaits)
		require.ErrorContains(t, err, "a gang of another namespace could start now and comes first")
		assert.NotContains(t, err.Error(), "secret")
		assert.NotContains(t, w.see()["c"].Why, "secret")
	})
}

// What a pod waits for whose gang does is said by explain, and for what capacity is kept.
func TestExplainGang(t *testing.T) {
	gangTest(t, 1, 3, func(w *gangWorld) {
		explain := func(pod *cluster.Pod) *Explanation { return w.arbiter().Explain(pod.Ref) }
		pods, single := w.gang("a", 4, 4, nil), w.pod("", "single", 0, withoutGang)
		e := explain(pods[1])
		require.NotNil(t, e.Gang)
		assert.Contains(t, e.Message, "there is capacity for the pod on 1 of 1 nodes", "nobody has tried")
		assert.Contains(t, e.Message, "; its gang needs capacity for 4 pods, and no scheduler has asked to bind a pod of it")
		w.refusedAs(w.bind(pods[0], "n0"), ledger.GangUnplaced)
		e = explain(pods[1])
		assert.Equal(t, GangWaiting, e.Gang.State)
		assert.Contains(t, e.Message, "3 more pods of its gang need capacity at once, and there is some for 2")
		assert.Nil(t, explain(single).Gang)

		w.resize("n1", 1)
		require.NoError(t, w.bind(pods[0], "n0"))
		e = explain(pods[1])
		assert.Equal(t, "Reserved", e.State)
		assert.Contains(t, e.Message, "as a member of globalreserve gang ns/a, of which others are bound")
		assert.Equal(t, GangStarting, e.Gang.State)
		assert.Equal(t, "Bound", explain(pods[0]).State)

		w.lapse(2 * time.Minute)
		e = explain(pods[1])
		assert.Contains(t, e.Message, "; of its gang, 1 of the 4 pods it needs have a node")
	})
}
