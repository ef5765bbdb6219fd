package arbiter

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/globalreserve/globalreserve/pkg/cluster"
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

// Capacity is kept and given back in the name of schedulers that a caller may act for, in the namespaces where it may
// reserve, and for pods of schedulers that it may act for, whatever the request says.
func TestWhoMayReserve(t *testing.T) {
	const notIts = "pod ns/p is one of scheduler \"scheduler\""
	type testCase struct {
		caller, scheduler string
		namespace         string // another one than that of the pods
		unseen            bool   // the watch has not brought the pods
		denied            string // "" if granted
	}
	bubble.Each(t, map[string]testCase{
		"its own": {caller: "for-scheduler", scheduler: "scheduler"},
		"another's name": {
			caller: "for-other", scheduler: "scheduler",
			denied: "may not act for scheduler",
		},
		"another's pod":               {caller: "for-other", scheduler: "other", denied: notIts},
		"another's pod, not seen yet": {caller: "for-other", scheduler: "other", unseen: true, denied: notIts},
		"both, by the policy":         {caller: "listed", scheduler: "other"},
		"one by the policy":           {caller: "elsewhere", scheduler: "other", denied: "may not act for scheduler"},
		"everything, by plain HTTP":   {caller: ledger.Trusted, scheduler: "other"},
		"in its namespace":            {caller: "only-in-ns", scheduler: "scheduler"},
		"in another namespace": {
			caller: "only-in-ns", scheduler: "scheduler", namespace: "foreign",
			denied: "may not reserve in foreign",
		},
		"listed, but not in the namespace": {
			caller: "only-in-foreign", scheduler: "scheduler",
			denied: "may not reserve in ns",
		},
	}, func(t *testing.T, tc testCase) {
		p, second := newPod("p"), newPod("q")
		w := newWorld(t)
		w.api.put(p)
		w.api.put(second)
		if !tc.unseen {
			w.bring(p, second)
		}
		rules := policy.Default()
		rules.Schedulers = []policy.Scheduler{
			{Name: "scheduler", Callers: []string{"listed", "only-in-ns", "only-in-foreign"}},
			{Name: "other", Callers: []string{"listed", "elsewhere"}},
		}
		w.o.Policy.Set(rules)
		pods := []GangPod{{Ref: ref(p), Node: "a"}, {Ref: ref(second), Node: "a"}}
		g := &Gang{Scheduler: tc.scheduler, Caller: tc.caller, Pods: pods, Mode: ledger.Partial}
		if tc.namespace != "" {
			g.Pods[1].Ref, g.Pods[1].Request = ledger.PodRef{Namespace: tc.namespace, Name: "q"}, w.info(second).Request
		}
		for _, kind := range []Gang{{DryRun: true}, {Durable: true, DryRun: true}, {Durable: true}, {}} {
			g.DryRun, g.Durable = kind.DryRun, kind.Durable
			before := w.ledger.Revision()
			d, err := w.Reserve(as(t.Context(), tc.caller), g)
			if tc.denied == "" {
				require.NoError(t, err)
				require.Empty(t, d.Error)
				continue
			}
			require.ErrorAs(t, err, new(*identity.DeniedError))
			require.ErrorContains(t, err, tc.denied)
			require.Equal(t, before, w.ledger.Revision(), "nothing is reserved, of no pod")
		}
	})
}

// Who gives back has to act for the scheduler. No right in the namespace is asked for: what it gives back is its own.
func TestWhoMayGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod("p")
		w := newWorld(t, p)
		g := &Gang{
			Scheduler: "scheduler", Caller: "for-other", Pods: []GangPod{{Ref: ref(p), Node: "a"}},
			Mode: ledger.AllOrNothing,
		}
		before := w.ledger.Revision()
		_, err := w.Unreserve(as(t.Context(), "for-other"), g)
		require.ErrorAs(t, err, new(*identity.DeniedError))
		assert.Equal(t, before, w.ledger.Revision())
		rules := policy.Default()
		rules.Schedulers = []policy.Scheduler{{Name: "scheduler", Callers: []string{"only-in-foreign"}}}
		w.o.Policy.Set(rules)
		_, err = w.Unreserve(as(t.Context(), "only-in-foreign"), g)
		require.NoError(t, err)
	})
}

// What is reserved for a pod that does not exist yet keeps the pod from no node when it comes, and is another
// scheduler's than the request said: in memory and in an object, when the watch brings it, when it is read, and when it
// came while the request was decided.
func TestUnbornPodsAreTheirSchedulers(t *testing.T) {
	type testCase struct {
		caller  string
		durable bool
		comes   func(w *world, p *v1.Pod)
		during  bool // it comes after the request was looked at
		stays   bool
	}
	watched := func(w *world, p *v1.Pod) {
		w.bring(p)
		cluster.ObserveUnbound(w.ledger.Observer(), silent(), w.info(p))
	}
	read := func(w *world, p *v1.Pod) {
		_, err := w.pods.read(w.t.Context(), ref(p), 0)
		require.NoError(w.t, err)
	}
	bubble.Each(t, map[string]testCase{
		"watched":                  {caller: "for-other", comes: watched},
		"read":                     {caller: "for-other", comes: read},
		"an object, watched":       {caller: "for-other", durable: true, comes: watched},
		"an object, read":          {caller: "for-other", durable: true, comes: read},
		"while it is decided":      {caller: "for-other", during: true},
		"an object, while decided": {caller: "for-other", durable: true, during: true},
		"by those who may do all":  {caller: ledger.Trusted, comes: watched, stays: true},
		"an object of those":       {caller: ledger.Trusted, durable: true, comes: watched, stays: true},
	}, func(t *testing.T, tc testCase) {
		p := newPod("p")
		w := newWorld(t)
		if tc.during {
			looks := 0
			w.o.Ledger = gates.NewGatedLedger(w.ledger, w.gated.Clock, w.gated.Gates, func() string {
				if looks++; looks > 1 { // the first is before the pods are looked for
					watched(w, p)
				}
				return ""
			})
		}
		unborn := ledger.PodRef{Namespace: p.Namespace, Name: p.Name}
		g := &Gang{
			Scheduler: "other", Caller: tc.caller, Mode: ledger.AllOrNothing, Durable: tc.durable,
			Pods: []GangPod{{Ref: unborn, Node: "a", Request: w.info(p).Request}},
		}
		d, err := w.Reserve(as(t.Context(), tc.caller), g)
		require.NoError(t, err)
		require.Empty(t, d.Error)
		require.Equal(t, !tc.during, w.Has(unborn, "a"))
		w.api.put(p)
		if !tc.during {
			tc.comes(w, p)
		}
		assert.Equal(t, tc.stays, w.Has(ref(p), "a"))
		if tc.stays {
			return
		}
		own := &Gang{Scheduler: "scheduler", Caller: "for-scheduler", Pods: []GangPod{{Ref: ref(p), Node: "b"}}}
		d, err = w.Reserve(as(t.Context(), "for-scheduler"), own)
		require.NoError(t, err)
		require.Empty(t, d.Error)
		_, err = w.Bind(as(t.Context(), "for-scheduler"), ref(p), "b")
		require.NoError(t, err)
	})
}
