package arbiter

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/test/bubble"
)

func as(ctx context.Context, name string) context.Context {
	return identity.As(ctx, &user.DefaultInfo{Name: name})
}

// A pod is bound for callers that may act for its scheduler, by a role or by the policy, and for nobody else.
func TestWhoMayBind(t *testing.T) {
	type testCase struct {
		caller string
		uid    bool
		bound  bool
		// The scheduler has limits.
		limited bool
	}
	bubble.Each(t, map[string]testCase{
		"by a role":                {caller: "for-scheduler", uid: true, bound: true},
		"by the policy":            {caller: "listed", uid: true, bound: true},
		"by its name":              {caller: "listed", bound: true},
		"another scheduler":        {caller: "for-other", uid: true},
		"another one, by its name": {caller: "for-other"},
		"listed for another":       {caller: "elsewhere", uid: true},
		"limited, by a role":       {caller: "for-scheduler", uid: true, limited: true},
		"limited, by the policy":   {caller: "listed", uid: true, limited: true, bound: true},
		"limited, by plain HTTP":   {caller: ledger.Trusted, uid: true, limited: true, bound: true},
	}, func(t *testing.T, tc testCase) {
		p := newPod("p")
		w := newWorld(t, p)
		rules := policy.Default()
		rules.Schedulers = []policy.Scheduler{
			{Name: "scheduler", Callers: []string{"listed"}},
			{Name: "other", Callers: []string{"elsewhere"}},
		}
		if tc.limited {
			rules.Schedulers[0].Limits = map[v1.ResourceName]policy.Amount{v1.ResourceCPU: "50%"}
		}
		w.o.Policy.Set(rules)
		pod := ref(p)
		if !tc.uid {
			pod.UID = ""
		}
		before := w.ledger.Revision()
		_, err := w.Bind(as(t.Context(), tc.caller), pod, "a")
		if tc.bound {
			require.NoError(t, err)
			return
		}
		if tc.limited {
			assertOutcome(t, gates.Refused, err)
		} else {
			require.ErrorAs(t, err, new(*identity.DeniedError))
		}
		assert.Equal(t, before, w.ledger.Revision())
		assert.Empty(t, w.api.read(p.Namespace, p.Name).Spec.NodeName)
	})
}

// Advice about a pod is for callers that may act for its scheduler: it steers the pod.
func TestWhoMayAsk(t *testing.T) {
	bubble.Each(t, map[string]func(w *world, ctx context.Context, q *PodQuery) error{
		"filter": func(w *world, ctx context.Context, q *PodQuery) error {
			_, err := w.Filter(ctx, q, []string{"a"}, &Scratch{})
			return err
		},
		"prioritize": func(w *world, ctx context.Context, q *PodQuery) error {
			_, _, err := w.Prioritize(ctx, q, []string{"a"})
			return err
		},
		"preempt": func(w *world, ctx context.Context, q *PodQuery) error {
			_, _, err := w.Preempt(ctx, q, map[string][]types.UID{"a": {"victim"}})
			return err
		},
	}, func(t *testing.T, ask func(w *world, ctx context.Context, q *PodQuery) error) {
		p, unseen := newPod("p"), newPod("unseen")
		w := newWorld(t, p)
		w.bring(p)
		forged := func(p *v1.Pod) { p.Spec.SchedulerName = "other" }
		var denied *identity.DeniedError
		require.ErrorAs(t, ask(w, as(t.Context(), "for-other"), w.query(p, 0, forged)), &denied,
			"the API server's copy counts")
		require.NoError(t, ask(w, as(t.Context(), "for-scheduler"), w.query(p, 0, forged)))
		require.ErrorAs(t, ask(w, as(t.Context(), "for-other"), w.query(unseen, 0, func(*v1.Pod) {})), &denied)
		require.NoError(t, ask(w, as(t.Context(), "for-other"), w.query(unseen, 0, forged)),
			"advice on a pod that is not there yet")
	})
}
