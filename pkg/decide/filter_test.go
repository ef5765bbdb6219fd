package decide

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/test/background"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// TestFilterWithReservations asks about a pod of two CPUs on nodes of four: b is
// taken by a slot for pods of index i, c by a preemptible one of priority -1.
func TestFilterWithReservations(t *testing.T) {
	const full, away = ledger.InsufficientResource, ledger.AllocatedElsewhere
	type said = map[string]ledger.Reason
	priority := func(value int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &value } }
	fill := func(w *world) {
		w.observeOn(sized("filler", "3", 4), "a")
	}
	type testCase struct {
		setup    func(w *world)
		pod      func(p *v1.Pod)
		nodes    []string // nil: a, b, c
		looks    int      // 0: 1
		want     said
		tryAgain bool
		allowed  bool
	}
	bubble.Each(t, map[string]testCase{
		"reserved capacity is not for everybody": {want: said{"a": ledger.Fits, "b": full, "c": full}},
		"a matching pod is kept on its node":     {pod: indexed, want: said{"a": away, "b": ledger.Fits, "c": full}},
		"a weaker preference leaves the choice": {setup: func(w *world) {
			p := policy.Default()
			p.Prioritize.ReservationMatch = 9
			w.o.Policy.Set(p)
		}, pod: indexed, want: said{"a": ledger.Fits, "b": ledger.Fits, "c": full}},
		"a slot on a node that kube-scheduler does not offer": {
			pod: indexed, nodes: []string{"a", "c"}, want: said{"a": ledger.Fits, "c": full},
		},
		"it has its choice in the end": {pod: indexed, looks: 5, want: said{"a": ledger.Fits, "b": ledger.Fits, "c": full}},
		"preemptible capacity is not offered while there is other": {
			pod: priority(5), looks: 10, want: said{"a": ledger.Fits, "b": full, "c": full},
		},
		"it is when there is none": {
			setup: fill, pod: priority(5), want: said{"a": full, "b": full, "c": ledger.Fits}, allowed: true,
		},
		"not to pods of its own priority": {
			setup: fill, pod: priority(-1), looks: 10, want: said{"a": full, "b": full, "c": full},
		},
		"other capacity that was not offered is looked for": {
			pod: priority(5), nodes: []string{"b", "c"}, looks: looksBeforePreempting - 1,
			want: said{"b": full, "c": full}, tryAgain: true,
		},
		"but not for ever": {
			pod: priority(5), nodes: []string{"b", "c"}, looks: looksBeforePreempting,
			want: said{"b": full, "c": ledger.Fits}, allowed: true,
		},
	}, func(t *testing.T, tt testCase) {
		w, p := reserved(t, tt.pod)
		if tt.setup != nil {
			tt.setup(w)
		}
		nodes := tt.nodes
		if nodes == nil {
			nodes = []string{"a", "b", "c"}
		}
		var advice *Advice
		var got said
		for range max(tt.looks, 1) {
			advice, got = w.reasons(w.query(p, 5, small), nodes...)
		}
		assert.Equal(t, tt.want, got)
		assert.False(t, advice.ComesBack)
		assert.Equal(t, tt.tryAgain, advice.TryAgain)
		assert.Equal(t, tt.allowed, w.waiting.MayPreempt(p.UID))
		assert.True(t, advice.Known)
		err := w.bindPod(p, "c") // where the preemptible slot is
		if !tt.allowed {
			assertOutcome(t, gates.Refused, err)
			return
		}
		require.NoError(t, err)
		assert.Equal(t, 1, w.ledger.Stats().Slots, "it has ended the slot")
		assert.False(t, w.waiting.MayPreempt(p.UID), "it has used its leave")
	})
}

// reserved is the world of TestFilterWithReservations.
func reserved(t *testing.T, change func(*v1.Pod)) (*world, *v1.Pod) {
	p := sized("p", "2", 5)
	if change != nil {
		change(p)
	}
	w := newWorld(t, p)
	placementtest.Nodes(w.ledger, 4000, "c")
	w.offer(consumedByIndex)
	match, idle := slot(4), slot(4)
	match.Node = "b"
	idle.Node, idle.Ref.Name, idle.Preemptible, idle.Priority = "c", "idle", true, -1
	require.True(t, w.ledger.ObserveSlot(match))
	require.True(t, w.ledger.ObserveSlot(idle))
	return w, p
}

// A pod that fits again without ending anything may end nothing any more.
func TestPermissionToPreemptIsWithdrawn(t *testing.T) {
	w, p := reserved(t, important)
	filler := sized("filler", "3", 4)
	w.observeOn(filler, "a")
	ask := func() { w.reasons(w.query(p, 5, small), "a", "b", "c") }
	ask()
	require.True(t, w.waiting.MayPreempt(p.UID))
	w.ledger.RemovePod(ref(filler), 5)
	ask()
	assert.False(t, w.waiting.MayPreempt(p.UID))
}

// The scheduler has not looked at the node that has the pod's slot.
func TestFilterSendsPodToNodeThatWasNotOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := reserved(t, indexed)
		defer background.Run(t, w.waiting.Run)()
		offered := []string{"a"}
		for len(offered) < 100 {
			offered = append(offered, "other")
		}
		advice, said := w.reasons(w.query(p, 5, small), offered...)
		assert.True(t, advice.ComesBack)
		assert.False(t, advice.TryAgain)
		assert.Equal(t, ledger.AllocatedElsewhere, said["a"])
		assert.Equal(t, ledger.NodeUnknown, said["other"], "the reason stays the ledger's")
	})
}

// All nodes of the sample are full, and one that was not in it is free.
func TestFilterSendsPodThatASampleRefuses(t *testing.T) {
	type testCase struct {
		offered   []string // and nodes that are full
		nominated string
		want      string
	}
	bubble.Each(t, map[string]testCase{
		"to a free node":                   {want: "b"},
		"not where one of the sample fits": {offered: []string{"a"}},
		"not while victims end elsewhere":  {nominated: "a"},
	}, func(t *testing.T, tt testCase) {
		p := newPod("p")
		w := newWorld(t, p)
		if tt.offered == nil {
			w.ledger.RemoveNode("a")
		}
		defer background.Run(t, w.waiting.Run)()
		offered := tt.offered
		for i := range requeue.MinSample {
			full := fmt.Sprint("full-", i)
			w.ledger.ObserveNode(ledger.NodeObservation{Name: full})
			offered = append(offered, full)
		}
		q := w.query(p, 0, small)
		q.Nominated = tt.nominated
		advice, _ := w.reasons(q, offered...)
		w.Filtered(t.Context(), advice, offered)
		pass(time.Second)
		assert.Equal(t, tt.want, w.writes.Nominated("p"))
		if tt.want == "" {
			return
		}
		// The scheduler tries it, and something else was faster: nobody is waited for.
		w.ledger.ObserveNode(ledger.NodeObservation{Name: "b"})
		q.Nominated = tt.want
		began := time.Now()
		w.reasons(q, tt.want)
		assert.Zero(t, time.Since(began))
	})
}

func TestPrioritize(t *testing.T) {
	type testCase struct {
		setup func(w *world, p *v1.Pod)
		pod   func(*v1.Pod)
		want  []int64 // of a, b, c
	}
	bubble.Each(t, map[string]testCase{
		"by use":            {nil, nil, []int64{5, 10, 10}},
		"a slot it may use": {nil, indexed, []int64{0, 10, 0}},
		"its own reservation": {func(w *world, p *v1.Pod) {
			plan := ledger.NewPlan([]ledger.Placement{w.info(p).Placement("a")}, ledger.AllOrNothing, time.Time{})
			require.Equal(w.t, 1, w.ledger.Reserve(plan, time.Now()).Granted)
		}, indexed, []int64{10, 0, 0}},
		"least allocated": {func(w *world, _ *v1.Pod) {
			p := policy.Default()
			p.Prioritize.Strategy, p.Prioritize.ReservationMatch = policy.LeastAllocated, 4
			w.o.Policy.Set(p)
		}, indexed, []int64{3, 4, 0}},
		"least allocated, for its scheduler": {func(w *world, _ *v1.Pod) {
			p := policy.Default()
			p.Prioritize.ReservationMatch = 4
			p.Schedulers = []policy.Scheduler{
				{Name: "other", Prioritize: &policy.SchedulerPrioritize{ReservationMatch: new(int64(9))}},
				{Name: "scheduler", Prioritize: &policy.SchedulerPrioritize{Strategy: policy.LeastAllocated}},
			}
			w.o.Policy.Set(p)
		}, indexed, []int64{3, 4, 0}},
	}, func(t *testing.T, tt testCase) {
		w, p := reserved(t, tt.pod)
		if tt.setup != nil {
			tt.setup(w, p)
		}
		_, scores, err := w.Prioritize(t.Context(), w.query(p, 5, small), []string{"a", "b", "c"})
		require.NoError(t, err)
		assert.Equal(t, tt.want, scores)
	})
}

// TestNominatedNodeGetsAMoment has pods evicted from a node for the pod that is nominated there:
// its scheduler has seen them go, and our watch has not yet.
func TestNominatedNodeGetsAMoment(t *testing.T) {
	type testCase struct {
		nominated string
		gone      time.Duration // when the watch shows it; 0: never
		want      ledger.Reason
		within    time.Duration
	}
	bubble.Each(t, map[string]testCase{
		"the watch tells at once":     {"a", 5 * time.Millisecond, ledger.Fits, 5 * time.Millisecond},
		"the watch is far behind":     {"a", time.Minute, ledger.InsufficientResource, maxLag},
		"nobody goes":                 {"a", 0, ledger.InsufficientResource, maxLag},
		"nominated elsewhere":         {"b", 5 * time.Millisecond, ledger.InsufficientResource, 0},
		"nominated for no node":       {"", 5 * time.Millisecond, ledger.InsufficientResource, 0},
		"nominated for one not asked": {"c", 5 * time.Millisecond, ledger.InsufficientResource, 0},
	}, func(t *testing.T, tt testCase) {
		p, victim := newPod("p"), sized("victim", "4", 1) // all of node a
		victim.Spec.NodeName = "a"
		w := newWorld(t, p, victim)
		w.observe(victim)
		if tt.gone > 0 {
			time.AfterFunc(tt.gone, func() { w.ledger.RemovePod(ref(victim), 0) })
		}
		start := time.Now()
		q := &PodQuery{Ref: ref(p), Nominated: tt.nominated}
		advice, err := w.Filter(t.Context(), q, []string{"a", "b"}, &Scratch{})
		require.NoError(t, err)
		assert.Equal(t, tt.want, advice.Verdicts[0].Reason)
		assert.Equal(t, ledger.Fits, advice.Verdicts[1].Reason)
		assert.Equal(t, tt.within, time.Since(start))
		pass(time.Minute)
	})
}

// A scheduler cannot name as a victim what another one is binding. A node is left to a preemptor where only pods of a
// lower priority are missing from its victims.
func TestPreemptBesideBindsInFlight(t *testing.T) {
	type testCase struct {
		priority int32
		fits     bool
	}
	bubble.Each(t, map[string]testCase{
		"of a lower priority": {0, true}, "of the same priority": {10, false},
	}, func(t *testing.T, tt testCase) {
		p, victim, binding := sized("p", "4", 1), sized("victim", "2", 1), sized("binding", "2", 1)
		p.Spec.Priority, binding.Spec.Priority = new(int32(10)), &tt.priority
		victim.Spec.NodeName = "a"
		w := newWorld(t, p, victim, binding)
		w.observe(victim)
		placement := w.o.Question.For(w.info(binding), "a")
		_, rejection := w.o.Ledger.StartBind(&placement)
		require.NoError(t, rejection)
		_, fits, err := w.Preempt(t.Context(), w.query(p, 1, nil), map[string][]types.UID{"a": {victim.UID}})
		require.NoError(t, err)
		assert.Equal(t, map[string]bool{"a": tt.fits}, fits)
		assert.Equal(t, "Binding on a", w.on(ref(binding)))
	})
}

func TestNodeScoreExtremes(t *testing.T) {
	huge := int64(math.MaxInt64)
	for _, u := range []ledger.Usage{
		{Allocatable: 0, Used: 5},
		{Allocatable: 1, Used: 0},
		{Allocatable: huge, Used: huge},
		{Allocatable: 1, Used: huge},
		{Allocatable: huge, Used: 0},
		{Allocatable: -1, Used: 1},
		{Allocatable: 10, Used: -10},
	} {
		for _, least := range []bool{false, true} {
			for _, request := range []int64{0, 1, huge} {
				got := nodeScore([]factor{{weight: 100, request: request}}, []ledger.Usage{u}, least, false)
				assert.GreaterOrEqual(t, got, extenderv1.MinExtenderPriority, "%+v", u)
				assert.LessOrEqual(t, got, extenderv1.MaxExtenderPriority, "%+v", u)
			}
		}
	}
	assert.Equal(t, int64(10), nodeScore([]factor{{1, 1}}, []ledger.Usage{{Allocatable: 4, Used: 3}}, false, false))
	assert.Equal(t, int64(0), nodeScore([]factor{{1, 2}}, []ledger.Usage{{Allocatable: 4, Used: 3}}, true, false))
}
