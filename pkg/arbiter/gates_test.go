package arbiter

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// A gate that refuses a namespace refuses it on every integration path, and others on none. While nothing can be
// decided, nobody passes.
// Placement of Reservation objects and the capacity of deleted pods are asked for in
// pkg/reservations and its folder deletedpods, which have the same test.
func TestGatesAreOnEveryPath(t *testing.T) {
	gang := func(p *v1.Pod, change func(*Gang)) *Gang {
		g := &Gang{
			Scheduler: "scheduler", Pods: []GangPod{{Ref: ref(p), Node: "a"}}, Mode: ledger.AllOrNothing, Fingerprint: "f",
		}
		if change != nil {
			change(g)
		}
		return g
	}
	reserved := func(d *Decision, err error) error {
		if err == nil && d.Error != "" {
			for _, refusal := range d.Refusals {
				assert.Equal(t, "Refused", refusal.Reason)
			}
			return errors.New(d.Error)
		}
		return err
	}
	paths := map[string]func(t *testing.T, w *world, p *v1.Pod) error{
		"filter": func(t *testing.T, w *world, p *v1.Pod) error {
			advice, err := w.Filter(t.Context(), w.query(p, noVersion, nil), []string{"a"}, &Scratch{})
			if err != nil {
				return err
			}
			assert.Equal(t, advice.Refused == nil, len(advice.Verdicts) == 1)
			return advice.Refused
		},
		"preempt": func(t *testing.T, w *world, p *v1.Pod) error {
			_, fits, err := w.Preempt(t.Context(), w.query(p, noVersion, nil), map[string][]types.UID{"a": {"victim"}})
			if err == nil && !fits["a"] {
				return errClosed
			}
			return err
		},
		"bind": func(_ *testing.T, w *world, p *v1.Pod) error { return w.bindPod(p, "a") },
		"reserve in memory": func(t *testing.T, w *world, p *v1.Pod) error {
			return reserved(w.Reserve(t.Context(), gang(p, nil)))
		},
		"reserve as an object": func(t *testing.T, w *world, p *v1.Pod) error {
			return reserved(w.Reserve(t.Context(), gang(p, func(g *Gang) { g.Durable, g.Name = true, "r" })))
		},
		"dry run": func(t *testing.T, w *world, p *v1.Pod) error {
			return reserved(w.Reserve(t.Context(), gang(p, func(g *Gang) { g.DryRun = true })))
		},
		"what-if": func(t *testing.T, w *world, p *v1.Pod) error {
			decide, err := w.WhatIf(t.Context(), gang(p, nil), nil)
			if err != nil {
				return reserved(nil, err)
			}
			return reserved(decide(), nil)
		},
		"explain": func(_ *testing.T, w *world, p *v1.Pod) error {
			if e := w.Explain(ref(p)); e.Fitting != 2 {
				return fmt.Errorf("%s (%v)", e.Message, e.Refusals)
			}
			return nil
		},
		"admission of a binding": func(t *testing.T, w *world, p *v1.Pod) error {
			_, err := w.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(p), Node: "a"})
			return err
		},
		"dry run of an admission": func(t *testing.T, w *world, p *v1.Pod) error {
			_, err := w.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(p), Node: "a", DryRun: true})
			return err
		},
		"admission of a resize": func(t *testing.T, w *world, p *v1.Pod) error {
			larger := p.DeepCopy()
			asking("2")(larger)
			_, err := w.AdmitResize(t.Context(), &ResizeQuery{Before: p, Pod: larger})
			return err
		},
		"admission of a pod": func(t *testing.T, w *world, p *v1.Pod) error {
			created := newPod("new")
			created.Namespace, created.UID = p.Namespace, ""
			_, err := w.PlanPod(t.Context(), created, "a", "user", false)
			return err
		},
		"admission of a pod that is written": func(t *testing.T, w *world, p *v1.Pod) error {
			created := newPod("new")
			created.Namespace = p.Namespace
			created.Annotations = map[string]string{v1alpha1.CallerAnnotation: "user"}
			_, err := w.AdmitPod(t.Context(), created, "a", "user", false)
			return err
		},
		"scheduler in the process": func(_ *testing.T, w *world, p *v1.Pod) error {
			placement := w.question.For(w.info(p), "a")
			_, _, err := w.Keep(&placement, time.Minute)
			return err
		},
		"bind of a scheduler in the process": func(t *testing.T, w *world, p *v1.Pod) error {
			return w.BindKnown(t.Context(), w.info(p), "a")
		},
		"slot of an object": func(_ *testing.T, w *world, p *v1.Pod) error {
			slot := ledger.Slot{Ref: ledger.SlotRef{Namespace: p.Namespace, Name: "r", Slot: "s"}, Node: "a", Request: w.info(p).
				Request}
			_, err := w.o.Ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{slot}}, false)
			return err
		},
		"slot kept on": func(_ *testing.T, w *world, p *v1.Pod) error {
			return w.o.Ledger.MayKeep(&ledger.Slot{Ref: ledger.SlotRef{Namespace: p.Namespace, Name: "r", Slot: "s"}})
		},
	}
	promisesNothingNew := []string{"explain", "slot kept on"}
	for name, ask := range paths {
		t.Run(name, func(t *testing.T) {
			for _, tc := range []struct{ namespace, undecided, want string }{
				{namespace: "ns"},
				{namespace: "closed", want: errClosed.Error()},
				{namespace: "ns", undecided: "another server decides", want: "another server decides"},
			} {
				if tc.undecided != "" && slices.Contains(promisesNothingNew, name) {
					tc.want = ""
				}
				p := sized("p", "1", 5)
				p.Namespace = tc.namespace
				w := newWorld(t, p)
				w.undecided.Store(&tc.undecided)
				w.gates = []Gate{func(asked *ledger.Placement) *Error {
					if asked.Pod.Namespace != "closed" {
						return nil
					}
					return &Error{Outcome: Refused, Why: errClosed.Error()}
				}}
				w.Arbiter = w.newArbiter(Options{})
				err := ask(t, w, p)
				if tc.want == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorContains(t, err, tc.want)
				assert.Equal(t, tc.undecided != "", isNotReady(err))
				stats := w.ledger.Stats()
				assert.Zero(t, stats.InMemory+stats.Slots+stats.Allocations[ledger.Binding]+stats.Allocations[ledger.Bound])
				assert.Empty(t, w.written())
				assert.Zero(t, w.api.posts)
			}
		})
	}
}

var errClosed = errors.New("the namespace is closed")
