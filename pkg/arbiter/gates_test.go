package arbiter

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// A caller that the policy does not list for a scheduler with limits is refused by a gate on every integration path.
// One that is listed is refused on none. So the policy, the scheduler and the caller reach the gates. While nothing
// can be decided, nobody passes.
// Gangs, the placement of Reservation objects and the capacity of deleted pods are asked for in the folder gang, in
// pkg/reservations and in its folder deletedpods, which have the same test.
func TestGatesAreOnEveryPath(t *testing.T) {
	const caller = "for-scheduler"
	asCaller := func(t *testing.T) context.Context { return as(t.Context(), caller) }
	paths := map[string]func(t *testing.T, w *world, p *v1.Pod) error{
		"filter": func(t *testing.T, w *world, p *v1.Pod) error {
			advice, err := w.Filter(asCaller(t), w.query(p, noVersion, nil), []string{"a"}, &Scratch{})
			if err != nil {
				return err
			}
			assert.Equal(t, advice.Refused == nil, len(advice.Verdicts) == 1)
			return advice.Refused
		},
		"preempt": func(t *testing.T, w *world, p *v1.Pod) error {
			_, fits, err := w.Preempt(asCaller(t), w.query(p, noVersion, nil), map[string][]types.UID{"a": {"victim"}})
			if err == nil && !fits["a"] {
				return &gates.Error{Outcome: gates.Refused, Why: "may not act for scheduler"}
			}
			return err
		},
		"bind": func(t *testing.T, w *world, p *v1.Pod) error {
			_, err := w.Bind(asCaller(t), ref(p), "a")
			return err
		},
		"explain": func(_ *testing.T, w *world, p *v1.Pod) error {
			w.waiting.Await(w.info(p).WithCaller(caller), 0, nil, false)
			if e := w.Explain(ref(p)); e.Fitting != 2 {
				return fmt.Errorf("%s (%v)", e.Message, e.Refusals)
			}
			return nil
		},
		"admission of a binding": func(t *testing.T, w *world, p *v1.Pod) error {
			_, err := w.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(p), Node: "a", User: caller})
			return err
		},
		"dry run of an admission": func(t *testing.T, w *world, p *v1.Pod) error {
			_, err := w.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(p), Node: "a", User: caller, DryRun: true})
			return err
		},
		"admission of a resize": func(t *testing.T, w *world, p *v1.Pod) error {
			p = p.DeepCopy()
			p.Spec.NodeName, p.Annotations = "a", map[string]string{v1alpha1.CallerAnnotation: caller}
			w.bring(p)
			larger := p.DeepCopy()
			asking("2")(larger)
			_, err := w.AdmitResize(t.Context(), &ResizeQuery{Before: p, Pod: larger})
			return err
		},
		"admission of a pod": func(t *testing.T, w *world, p *v1.Pod) error {
			created := newPod("new")
			created.Namespace, created.UID = p.Namespace, ""
			_, err := w.PlanPod(t.Context(), created, "a", caller, false)
			return err
		},
		"admission of a pod that is written": func(t *testing.T, w *world, p *v1.Pod) error {
			created := newPod("new")
			created.Namespace = p.Namespace
			created.Annotations = map[string]string{v1alpha1.CallerAnnotation: caller}
			_, err := w.AdmitPod(t.Context(), created, "a", caller, false)
			return err
		},
		"scheduler in the process": func(_ *testing.T, w *world, p *v1.Pod) error {
			placement := w.question.For(w.info(p).WithCaller(caller), "a")
			_, _, err := w.Keep(&placement, time.Minute)
			return err
		},
		"bind of a scheduler in the process": func(t *testing.T, w *world, p *v1.Pod) error {
			return w.BindKnown(t.Context(), w.info(p), "a") // in the name of whoever has the server
		},
		"slot of an object": func(_ *testing.T, w *world, p *v1.Pod) error {
			slot := ledger.Slot{
				Ref: ledger.SlotRef{Namespace: p.Namespace, Name: "r", Slot: "s"}, Node: "a", Request: w.info(p).Request,
				Scheduler: "scheduler", Caller: caller,
			}
			_, err := w.o.Ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{slot}}, false)
			return err
		},
		"slot kept on": func(_ *testing.T, w *world, p *v1.Pod) error {
			return w.o.Ledger.RefuseSlot(&ledger.Slot{
				Ref:       ledger.SlotRef{Namespace: p.Namespace, Name: "r", Slot: "s"},
				Scheduler: "scheduler", Caller: caller,
			})
		},
	}
	promisesNothingNew := []string{"explain", "slot kept on"}
	mayAll := []string{"bind of a scheduler in the process"}
	for name, ask := range paths {
		t.Run(name, func(t *testing.T) {
			for _, tc := range []struct{ listed, undecided, want string }{
				{listed: caller},
				{listed: "another", want: "may not act for scheduler"},
				{listed: caller, undecided: "another server decides", want: "another server decides"},
			} {
				if tc.undecided != "" && slices.Contains(promisesNothingNew, name) {
					tc.want = ""
				}
				if tc.undecided == "" && slices.Contains(mayAll, name) {
					tc.want = ""
				}
				p := sized("p", "1", 5)
				w := newWorld(t, p)
				w.undecided.Store(&tc.undecided)
				w.policy.Set(gatestest.Limited("scheduler", tc.listed))
				err := ask(t, w, p)
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

// A caller that a gate refuses is not told which capacity is kept for a pod, and plans nothing for it.
func TestGateAndScores(t *testing.T) {
	p, alike := newPod("p"), newPod("alike")
	w := newWorld(t, p, alike)
	scores := func(pod *v1.Pod) []int64 {
		_, scores, err := w.Prioritize(as(t.Context(), "for-scheduler"), &PodQuery{Ref: ref(pod)}, []string{"a", "b"})
		require.NoError(t, err)
		return scores
	}
	placement := w.question.For(w.info(p), "b")
	_, _, err := w.Keep(&placement, time.Minute)
	require.NoError(t, err)
	assert.NotEqual(t, scores(alike), scores(p))
	w.policy.Set(gatestest.Limited("scheduler"))
	assert.Equal(t, scores(alike), scores(p))
}
