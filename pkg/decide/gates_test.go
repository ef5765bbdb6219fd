package decide

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// way is a way to ask for capacity for a pod on node a, in the name of a caller.
type way struct {
	ask func(w *world, caller string, p *v1.Pod) error
	// keeps says that what is granted counts against the limits of the caller.
	keeps bool
	// path is the one by which refusals are remembered, tries where none is.
	path string
	// nothingNew says that it promises nothing new, so that it is answered while nothing can be decided.
	nothingNew bool
	// ownName says that it is in the name of whoever has the server, who may do all.
	ownName bool
}

// tries is the path of a way that only tries.
const tries = "nothing is remembered"

// ways are those of single pods. Gangs, the placement of Reservation objects and the capacity of deleted pods are asked
// for in the folder reserve, in pkg/reservations and in its folder deletedpods.
var ways = map[string]way{
	"filter": {path: requeue.Filter, ask: func(w *world, caller string, p *v1.Pod) error {
		ctx, nodes := as(w.t.Context(), caller), []string{"b", "a"}
		advice, err := w.Filter(ctx, w.query(p, 5, small), nodes, &Scratch{})
		if err != nil {
			return err
		}
		assert.Equal(w.t, advice.Refused == nil, len(advice.Verdicts) == len(nodes))
		if !fitsAny(advice.Verdicts) {
			w.Filtered(ctx, advice, nodes)
		}
		return advice.Refused
	}},
	"preempt": {ask: func(w *world, caller string, p *v1.Pod) error {
		_, fits, err := w.Preempt(as(w.t.Context(), caller), w.query(p, noVersion, nil),
			map[string][]types.UID{"a": {"victim"}})
		if err == nil && !fits["a"] {
			return &gates.Error{Outcome: gates.Refused, Why: "may not act for scheduler"}
		}
		return err
	}},
	"bind": {keeps: true, path: requeue.Bind, ask: func(w *world, caller string, p *v1.Pod) error {
		_, err := w.Bind(as(w.t.Context(), caller), ref(p), "a")
		assert.True(w.t, err != nil || w.api.read(p.Namespace, p.Name).Annotations[v1alpha1.CallerAnnotation] == caller)
		return err
	}},
	"explain": {nothingNew: true, ask: func(w *world, caller string, p *v1.Pod) error {
		w.waiting.Await(w.info(p).WithCaller(caller), 0, nil, false)
		if e := w.Explain(ref(p)); e.FitCount != 2 {
			return fmt.Errorf("%s (%v)", e.Message, e.Refusals)
		}
		return nil
	}},
	"admission of a binding": {keeps: true, path: requeue.Admission, ask: func(w *world, caller string, p *v1.Pod) error {
		said, err := w.AdmitBinding(w.t.Context(), &BindingQuery{Pod: ref(p), Node: "a", User: caller})
		assert.True(w.t, err != nil || said.Annotations[v1alpha1.CallerAnnotation] == caller)
		return err
	}},
	"dry run of an admission": {path: tries, ask: func(w *world, caller string, p *v1.Pod) error {
		_, err := w.AdmitBinding(w.t.Context(), &BindingQuery{Pod: ref(p), Node: "a", User: caller, DryRun: true})
		return err
	}},
	"admission of a resize": {ask: func(w *world, caller string, p *v1.Pod) error {
		p = p.DeepCopy()
		p.Spec.NodeName, p.Annotations = "a", map[string]string{v1alpha1.CallerAnnotation: caller}
		w.bring(p)
		larger := p.DeepCopy()
		asking("2")(larger)
		_, err := w.AdmitResize(w.t.Context(), &ResizeQuery{Before: p, Pod: larger})
		return err
	}},
	"admission of a pod": {ask: func(w *world, caller string, p *v1.Pod) error {
		created := newPod("created-" + p.Name)
		created.UID = ""
		_, err := w.PlanPod(w.t.Context(), created, "a", caller, false)
		return err
	}},
	"admission of a pod that is written": {keeps: true, ask: func(w *world, caller string, p *v1.Pod) error {
		created := newPod("created-" + p.Name)
		created.Annotations = map[string]string{v1alpha1.CallerAnnotation: caller}
		said, err := w.AdmitPod(w.t.Context(), created, "a", caller, false)
		assert.True(w.t, err != nil || said.Annotations[v1alpha1.CallerAnnotation] == caller)
		return err
	}},
	"scheduler in the process": {keeps: true, path: requeue.Plugin, ask: func(w *world, caller string, p *v1.Pod) error {
		_, _, err := w.KeepAll([]ledger.Placement{w.question.For(w.info(p).WithCaller(caller), "a")}, time.Minute)
		return err
	}},
	"its binds": {ownName: true, ask: func(w *world, _ string, p *v1.Pod) error {
		return w.BindKnown(w.t.Context(), w.info(p), "a")
	}},
	"slot of an object": {ask: func(w *world, caller string, p *v1.Pod) error {
		slot := ledger.Slot{
			Ref: ledger.SlotRef{Namespace: p.Namespace, Name: "r", Slot: "s"}, Node: "a", Request: w.info(p).Request,
			Scheduler: "scheduler", Caller: caller,
		}
		_, err := w.o.Ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{slot}}, false)
		return err
	}},
	"slot kept on": {nothingNew: true, ask: func(w *world, caller string, p *v1.Pod) error {
		return w.o.Ledger.RefuseSlot(&ledger.Slot{
			Ref:       ledger.SlotRef{Namespace: p.Namespace, Name: "r", Slot: "s"},
			Scheduler: "scheduler", Caller: caller,
		})
	}},
}

// A caller that the policy does not list for a scheduler with limits is refused by a gate whatever way it asks. One
// that is listed is not. So the policy, the scheduler and the caller reach the gates. While nothing can be decided,
// nobody passes.
func TestGatesAreOnEveryPath(t *testing.T) {
	const caller = "for-scheduler"
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			for _, tc := range []struct{ listed, undecided, want string }{
				{listed: caller},
				{listed: "another", want: "may not act for scheduler"},
				{listed: caller, undecided: "another server decides", want: "another server decides"},
			} {
				if (tc.undecided != "" && way.nothingNew) || (tc.undecided == "" && way.ownName) {
					tc.want = ""
				}
				p := sized("p", "1", 5)
				w := newWorld(t, p)
				w.undecided.Store(&tc.undecided)
				w.policy.Set(gatestest.Limited("scheduler", tc.listed))
				err := way.ask(w, caller, p)
				if tc.want == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorContains(t, err, tc.want)
				assert.Equal(t, tc.undecided != "", gates.IsNotReady(err))
				stats := w.ledger.Stats()
				assert.Zero(t, stats.InMemory+stats.Slots+stats.Allocations[ledger.Binding]+stats.Allocations[ledger.Bound])
				assert.Zero(t, w.api.posts)
			}
		})
	}
}

// What a caller has counts against its limit, whatever scheduler the pod names, and others go on.
func TestCallersStayWithinTheirLimits(t *testing.T) {
	oneCPU := &ledger.Limits{Use: []resources.Amount{{Column: resources.CPU, Value: 1000}}}
	keep := maps.Clone(ways)
	maps.DeleteFunc(keep, func(_ string, w way) bool { return !w.keeps })
	bubble.Each(t, keep, func(t *testing.T, way way) {
		pods := []*v1.Pod{sized("first", "1", 1), sized("second", "1", 2), sized("of-others", "1", 3)}
		w := newWorld(t, pods...)
		for k := range 20 { // of which creations have a share
			w.ledger.ObserveNode(ledger.NodeObservation{Name: fmt.Sprint("empty-", k)})
		}
		w.ledger.Observer().SetLimits(ledger.OfCaller, map[string]*ledger.Limits{"for-scheduler": oneCPU})
		require.NoError(t, way.ask(w, "for-scheduler", pods[0]))
		err := way.ask(w, "for-scheduler", pods[1])
		assertOutcome(t, gates.Refused, err)
		var e *gates.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, ledger.CallerLimit, e.Rejection.Reason)
		assert.Contains(t, e.Rejection.Message(), "for-scheduler")
		require.NoError(t, way.ask(w, ledger.Trusted, pods[2]))
	})
}

// A pod of three CPUs is refused where one of two is, and the refusal is remembered; what is granted, or only tried, is
// not.
func TestRefusalsAreRemembered(t *testing.T) {
	const caller, plugin = "for-scheduler", "its plugin"
	remember := maps.Clone(ways)
	maps.DeleteFunc(remember, func(_ string, w way) bool { return w.path == "" })
	remember[plugin] = way{path: requeue.Plugin, ask: func(w *world, caller string, p *v1.Pod) error {
		w.PluginRefused(w.info(p).WithCaller(caller), []string{"b", "a"})
		return nil
	}}
	for name, way := range remember {
		t.Run(name, func(t *testing.T) {
			fits, large := sized("fits", "1", 4), sized("large", "3", 5)
			w := newWorld(t, fits, large)
			for _, node := range []string{"a", "b"} {
				w.observeOn(sized("on-"+node, "2", 3), node)
			}
			require.NoError(t, way.ask(w, caller, fits))
			list, last := w.waiting.RefusalsAfter(0)
			require.Empty(t, list)
			require.Zero(t, last)

			before := time.Now().Add(-time.Minute)
			_ = way.ask(w, caller, large)
			list, last = w.waiting.RefusalsAfter(0)
			if way.path == tries {
				require.Empty(t, list)
				return
			}
			require.Len(t, list, 1)
			assert.EqualValues(t, 1, last)
			r := list[0]
			assert.Equal(t, []string{way.path, caller, "scheduler", "InsufficientResource"},
				[]string{r.Path, r.Caller, r.Scheduler, r.Reason})
			assert.Equal(t, ref(large), r.Rejection.Pod)
			assert.False(t, r.Warned)
			assert.Equal(t, "cpu", r.Rejection.Resource)
			assert.EqualValues(t, 3000, r.Rejection.Requested)
			if way.path == requeue.Filter || name == plugin {
				assert.Equal(t, "a", r.Rejection.Node, "the first by name of those where it lacks least")
				assert.EqualValues(t, 2000, r.Rejection.Free)
				assert.Equal(t, []requeue.Count{{Reason: ledger.InsufficientResource, Nodes: 2}}, r.Reasons)
			} else {
				assert.Equal(t, "a", r.Rejection.Node)
			}
			assert.NotEmpty(t, r.Rejection.Holders)
			assert.WithinRange(t, r.At, before, time.Now().Add(time.Minute))
			require.Len(t, w.waiting.Waiters(func(string) bool { return true }), 1)
			w.waiting.Settled(large.UID)
			assert.Empty(t, w.waiting.Waiters(func(string) bool { return true }))
		})
	}
}

// Filter says so before, to the caller that would be refused and to nobody else. What is explained of a pod that waits
// is the answer to the caller that asked about it last.
func TestAdviceKnowsTheLimitsOfWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod("p")
		w := newWorld(t, p)
		w.policy.Set(gatestest.Limited("another", "for-scheduler"))
		w.ledger.Observer().SetLimits(ledger.OfCaller,
			map[string]*ledger.Limits{"for-scheduler": {Use: []resources.Amount{{Column: resources.CPU}}}})
		filter := func(caller string) *Advice {
			advice, err := w.Filter(as(t.Context(), caller), &PodQuery{Ref: ref(p)}, []string{"a"}, &Scratch{})
			require.NoError(t, err)
			return advice
		}
		refused := filter("for-scheduler")
		assert.Equal(t, ledger.CallerLimit, refused.Verdicts[0].Reason)
		assert.Equal(t, "for-scheduler", refused.Pod.Caller, "whoever wakes the pod looks at the same limit")
		assert.Equal(t, ledger.Fits, filter(ledger.Trusted).Verdicts[0].Reason)

		assert.Equal(t, 2, w.Explain(ref(p)).FitCount, "nobody has asked")
		w.waiting.Await(w.info(p).WithCaller(ledger.Trusted), 0, nil, false)
		assert.Equal(t, 2, w.Explain(ref(p)).FitCount, "its limits are others'")
		w.waiting.Await(w.info(p).WithCaller("for-scheduler"), 0, nil, false)
		e := w.Explain(ref(p))
		assert.Zero(t, e.FitCount)
		assert.Equal(t, []reserver.RefusalGroup{{
			Reason: ledger.CallerLimit.String(), Resource: "cpu", Nodes: 2,
			Examples: []string{"a", "b"},
		}}, e.Refusals)
		assert.Contains(t, e.Message, `caller "for-scheduler" would use more cpu than the policy allows (schedulers.limits)`)
	})
}

// A caller that a gate refuses does not learn which capacity is kept for a pod, and plans nothing for it.
func TestGateAndScores(t *testing.T) {
	p, alike := newPod("p"), newPod("alike")
	w := newWorld(t, p, alike)
	scores := func(pod *v1.Pod) []int64 {
		_, scores, err := w.Prioritize(as(t.Context(), "for-scheduler"), &PodQuery{Ref: ref(pod)}, []string{"a", "b"})
		require.NoError(t, err)
		return scores
	}
	placement := w.question.For(w.info(p), "b")
	_, _, err := w.KeepAll([]ledger.Placement{placement}, time.Minute)
	require.NoError(t, err)
	assert.NotEqual(t, scores(alike), scores(p))
	w.policy.Set(gatestest.Limited("scheduler"))
	assert.Equal(t, scores(alike), scores(p))
}

// TestKeepAll keeps capacity for all pods of a gang or for none.
func TestKeepAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := newPod("p"), newPod("q")
		w := newWorld(t, p, q)
		gang := []ledger.Placement{w.question.For(w.info(p), "a"), w.question.For(w.info(q), "nowhere")}
		_, _, err := w.KeepAll(gang, time.Minute)
		assertOutcome(t, gates.Refused, err)
		assert.Equal(t, ledger.NodeUnknown, reasonOf(err))
		made, _, err := w.KeepAll(gang[:1], time.Minute)
		require.NoError(t, err)
		require.Equal(t, []bool{true}, made, "nothing was kept")
		gang[1].Node = "a"
		all, _, err := w.KeepAll(gang, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, []bool{false, true}, all)
		w.policy.Set(gatestest.Limited("scheduler"))
		gang[1].Caller = "stranger"
		_, _, err = w.KeepAll(gang, time.Minute)
		assertOutcome(t, gates.Refused, err)
		_, _, err = w.KeepAll(gang[1:], time.Minute)
		assertOutcome(t, gates.Refused, err)
		require.Error(t, w.MayHave(&gang[1]))
		_, asks := w.waiting.AskedBy("scheduler")
		assert.False(t, asks)
		w.policy.Set(gatestest.Limited("scheduler", "stranger"))
		require.NoError(t, w.MayHave(&gang[1]))
		caller, _ := w.waiting.AskedBy("scheduler")
		assert.Equal(t, "stranger", caller)
		list, _ := w.waiting.RefusalsAfter(0)
		require.Len(t, list, 4)
		for _, r := range list[1:] {
			assert.Equal(t, []string{requeue.Plugin, gates.Reason, "q"}, []string{r.Path, r.Reason, r.Rejection.Pod.Name})
		}

		w.policy.Set(policy.Default())
		<-time.After(2 * time.Minute) // what was kept has ended, and nobody has looked
		made, _, err = w.KeepAll(gang[:1], time.Minute)
		require.NoError(t, err)
		assert.Equal(t, []bool{true}, made)
		<-time.After(2 * time.Minute)
		all, _, err = w.KeepAll(gang, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, []bool{true, true}, all)
		w.Release(&gang[0])
		w.Release(&gang[1])
		assert.Zero(t, w.ledger.Stats().InMemory)
	})
}
