package arbiter

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// On each path what a caller has counts against its limit, whatever scheduler the pod names, and others go on.
func TestCallersStayWithinTheirLimits(t *testing.T) {
	oneCPU := &ledger.Limits{Use: []resources.Amount{{Column: resources.CPU, Value: 1000}}}
	bubble.Each(t, map[string]func(w *world, p *v1.Pod, caller string) error{
		"bind": func(w *world, p *v1.Pod, caller string) error {
			_, err := w.Bind(as(w.t.Context(), caller), ref(p), "a")
			if err == nil {
				assert.Equal(w.t, caller, w.api.read(p.Namespace, p.Name).Annotations[v1alpha1.CallerAnnotation])
			}
			return err
		},
		"a Binding at the API server": func(w *world, p *v1.Pod, caller string) error {
			said, err := w.AdmitBinding(w.t.Context(), &BindingQuery{Pod: ref(p), Node: "a", User: caller})
			assert.True(w.t, err != nil || said.Annotations[v1alpha1.CallerAnnotation] == caller)
			return err
		},
		"a pod created with a node": func(w *world, p *v1.Pod, caller string) error {
			created := newPod("created-" + p.Name)
			said, err := w.PlanPod(w.t.Context(), created, "a", caller, false)
			if err == nil {
				created.Annotations = said.Annotations
				said, err = w.AdmitPod(w.t.Context(), created, "a", caller, false)
			}
			assert.True(w.t, err != nil || said.Annotations[v1alpha1.CallerAnnotation] == caller)
			return err
		},
		"a scheduler in this process": func(w *world, p *v1.Pod, caller string) error {
			placement := w.question.For(w.info(p).WithCaller(caller), "a")
			_, _, err := w.Keep(&placement, time.Minute)
			return err
		},
	}, func(t *testing.T, ask func(w *world, p *v1.Pod, caller string) error) {
		pods := []*v1.Pod{newPod("first"), newPod("second"), newPod("of-others")}
		for i, p := range pods {
			p.ResourceVersion = []string{"1", "2", "3"}[i]
		}
		w := newWorld(t, pods...)
		for k := range 20 { // of which creations have a share
			w.ledger.ObserveNode(ledger.NodeObservation{Name: fmt.Sprint("empty-", k)})
		}
		w.ledger.Observer().SetLimits(ledger.OfCaller, map[string]*ledger.Limits{"for-scheduler": oneCPU})
		require.NoError(t, ask(w, pods[0], "for-scheduler"))
		err := ask(w, pods[1], "for-scheduler")
		assertOutcome(t, gates.Refused, err)
		var e *gates.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, ledger.CallerLimit, e.Rejection.Reason)
		assert.Contains(t, e.Rejection.Message(), "for-scheduler")
		require.NoError(t, ask(w, pods[2], ledger.Trusted))
	})
}

// Filter says so before, to the caller that would be refused and to nobody else. What is explained of a pod that waits
// is what the caller was told that asked about it last.
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

		assert.Equal(t, 2, w.Explain(ref(p)).Fitting, "nobody has asked")
		w.waiting.Await(w.info(p).WithCaller(ledger.Trusted), 0, nil, false)
		assert.Equal(t, 2, w.Explain(ref(p)).Fitting, "its limits are others'")
		w.waiting.Await(w.info(p).WithCaller("for-scheduler"), 0, nil, false)
		e := w.Explain(ref(p))
		assert.Zero(t, e.Fitting)
		assert.Equal(t, []reserver.RefusalGroup{{
			Reason: ledger.CallerLimit.String(), Resource: "cpu", Nodes: 2,
			Examples: []string{"a", "b"},
		}}, e.Refusals)
		assert.Contains(t, e.Message, `caller "for-scheduler" would use more cpu than the policy allows (schedulers.limits)`)
	})
}
