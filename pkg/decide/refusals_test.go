package decide

import (
	"context"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/dra"
	"github.com/globalreserve/globalreserve/pkg/dra/account"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// A refusal of filter says what was in the way where that was no node's capacity.
func TestRefusalsOfFilterSayWhatIsInTheWay(t *testing.T) {
	p := sized("p", "1", 5)
	refuse := func(w *world, nodes ...string) *requeue.Refusal {
		ctx := as(w.t.Context(), "for-scheduler")
		advice, err := w.Filter(ctx, w.query(p, 5, small), nodes, &Scratch{})
		require.NoError(w.t, err)
		w.Filtered(ctx, advice, nodes)
		list, _ := w.waiting.RefusalsAfter(0)
		require.Len(w.t, list, 1)
		return list[0]
	}
	t.Run("it has its node", func(t *testing.T) {
		w := newWorld(t, p)
		_, _, err := w.KeepAll([]ledger.Placement{{Pod: ref(p), Node: "a", Request: w.info(p).Request}}, time.Hour)
		require.NoError(t, err)
		r := refuse(w, "b")
		assert.Equal(t, "AllocatedElsewhere", r.Reason)
		assert.Equal(t, "a", r.Rejection.AllocatedOn)
	})
	t.Run("nobody knows the node", func(t *testing.T) {
		assert.Equal(t, "NodeUnknown", refuse(newWorld(t, p), "x").Reason)
	})
	t.Run("its namespace has no more", func(t *testing.T) {
		w := newWorld(t, p)
		w.ledger.Observer().SetLimits(ledger.OfNamespace,
			map[string]*ledger.Limits{"ns": {Use: []resources.Amount{{Column: resources.CPU, Value: 500}}}})
		r := refuse(w, "a", "b")
		assert.Equal(t, "QuotaExceeded", r.Reason)
		assert.EqualValues(t, 500, r.Rejection.Limit)
		assert.Empty(t, r.Rejection.Node)
	})
	t.Run("a gate", func(t *testing.T) {
		w := newWorld(t, p)
		w.policy.Set(gatestest.Limited("scheduler"))
		r := refuse(w, "a")
		assert.Equal(t, gates.Reason, r.Reason)
		assert.Contains(t, r.Message, "may not act for scheduler")
		_, err := w.Bind(as(t.Context(), "for-scheduler"), ref(p), "a")
		require.Error(t, err)
		list, _ := w.waiting.RefusalsAfter(1)
		require.Len(t, list, 1)
		assert.Equal(t, []string{gates.Reason, r.Message, "a"},
			[]string{list[0].Reason, list[0].Message, list[0].Rejection.Node})
	})
}

// A pod that was refused by the webhook alone is explained for the caller that was.
func TestExplainKnowsWhoWasRefused(t *testing.T) {
	p := sized("p", "1", 5)
	w := newWorld(t, p)
	w.policy.Set(gatestest.Limited("scheduler"))
	_, err := w.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(p), Node: "a", User: "stranger"})
	require.Error(t, err)
	e := w.Explain(ref(p))
	require.Len(t, e.Refusals, 1)
	assert.Equal(t, gates.Reason, e.Refusals[0].Reason)
	assert.Contains(t, e.Message, `caller "stranger" may not act for scheduler`)
}

// A Reservation that there is no capacity for is a refusal of it, and not of the pod that it is for.
func TestRefusalsOfObjects(t *testing.T) {
	w := newWorld(t)
	asked := &ledger.Slot{
		Ref: ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}, Pod: ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"},
		Scheduler: "scheduler", Caller: "alice",
	}
	w.ObjectRefused(asked, &ledger.Rejection{
		Node: "a", Reason: ledger.InsufficientResource, Resource: "cpu", Requested: 5,
		Free: 4,
	}, "slot s: no node fits")
	w.ObjectRefused(asked, nil, "slot s: no node is selected")
	w.ObjectRefused(asked, &ledger.Rejection{Reason: ledger.SlotLimit}, "")
	assert.Equal(t, map[string]int{"SlotLimit": 1}, w.counted("globalreserve_limit_refusals_total", "reason"))
	list, _ := w.waiting.RefusalsAfter(0)
	require.Len(t, list, 3)
	for i, want := range [][]string{
		{"object", "alice", "InsufficientResource", ""},
		{"object", "alice", gates.Reason, "slot s: no node is selected"},
	} {
		r := list[i]
		assert.Equal(t, want, []string{r.Path, r.Caller, r.Reason, r.Message})
		assert.Equal(t, asked.Ref, r.Rejection.Slot)
		assert.Equal(t, "ns", r.Rejection.Pod.Namespace)
	}
	assert.Empty(t, w.waiting.Waiters(func(string) bool { return true }))
}

// A pod that filter has left no node gets an Event on which reservation keeps the capacity that it lacks. No other pod
// does: what a caller sends of a pod that does not exist may be wrong.
func TestWhoIsRefusedIsTold(t *testing.T) {
	type testCase struct {
		known bool
		nodes []string
		fit   int
	}
	bubble.Each(t, map[string]testCase{
		"a pod":                      {known: true, nodes: []string{"a", "b"}},
		"one that has a node left":   {known: true, nodes: []string{"a", "b", "c"}, fit: 1},
		"a copy of one that is none": {nodes: []string{"a", "b"}},
	}, func(t *testing.T, tt testCase) {
		p := sized("p", "3", 5)
		w := newWorld(t)
		if tt.known {
			w = newWorld(t, p)
		}
		placementtest.Nodes(w.ledger, 4000, "c")
		for _, node := range []string{"a", "b"} {
			kept := slot(4)
			kept.Node, kept.Ref.Name = node, node
			require.True(t, w.ledger.ObserveSlot(kept))
		}
		ask := func(nodes []string) (fit int) {
			advice, err := w.Filter(t.Context(), w.query(p, 5, func(pod *v1.Pod) { *pod = *p }), nodes, &Scratch{})
			require.NoError(t, err)
			assert.Equal(t, tt.known, advice.Known)
			return w.Filtered(t.Context(), advice, nodes)
		}
		for range 3 {
			assert.Equal(t, tt.fit, ask(tt.nodes))
		}
		if tt.fit > 0 {
			require.Empty(t, w.writes.Told())
			ask(tt.nodes[:2]) // it gets its Event at once: it was not looked at before
		}
		if tt.known {
			require.Len(t, w.writes.Told(), 1)
			assert.Contains(t, w.writes.Told()[0],
				"p CapacityReserved: node a would have capacity for this pod, but reservation ns/a/")
		} else {
			assert.Empty(t, w.writes.Told())
		}
	})
}

// That a gate refuses a pod on every node is logged once, also where the pod was refused for another reason before.
func TestRefusedEverywhereIsLoggedOnce(t *testing.T) {
	p := sized("p", "5", 5)
	w := newWorld(t, p)
	log, lines := logtest.NewNullLogger()
	w.o.Log = log
	ctx := as(t.Context(), "for-scheduler")
	for _, rules := range []*policy.Policy{
		policy.Default(), gatestest.Limited("scheduler"),
		gatestest.Limited("scheduler"),
	} {
		w.policy.Set(rules)
		advice, err := w.Filter(ctx, w.query(p, 5, small), []string{"a"}, &Scratch{})
		require.NoError(t, err)
		w.Filtered(ctx, advice, []string{"a"})
	}
	require.Len(t, lines.AllEntries(), 1)
	assert.Equal(t, "a pod is refused on every node", lines.LastEntry().Message)
}

func TestExamplesAreTheFirstInOrder(t *testing.T) {
	var examples []string
	for _, name := range []string{"e", "g", "a", "f", "c", "h", "b", "d"} {
		examples = addExample(examples, name)
	}
	assert.Equal(t, []string{"a", "b", "c", "d", "e"}, examples)
}

func TestExplainTellsOfResourceClaims(t *testing.T) {
	e := &Explanation{ExplainAnswer: reserver.ExplainAnswer{Message: "no node has capacity"}}
	e.ofResourceClaims(nil)
	assert.Equal(t, "no node has capacity", e.Message)
	e.ofResourceClaims([]dra.Held{{
		Namespace: "ns", Name: "a", For: 40 * time.Second, Devices: []account.Device{
			{Driver: "d", Pool: "p", Name: "gpu-0"},
			{Driver: "d", Pool: "p", Name: "gpu-1"},
		},
	}})
	assert.Equal(t,
		"no node has capacity; its ResourceClaim ns/a has had d/p/gpu-0, d/p/gpu-1 for 40s, though the pod is not bound: "+
			"they go back when its scheduler takes them back, or the pod is deleted", e.Message)
}

func as(ctx context.Context, name string) context.Context {
	return auth.As(ctx, &user.DefaultInfo{Name: name})
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
			require.ErrorAs(t, err, new(*auth.DeniedError))
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
		var denied *auth.DeniedError
		require.ErrorAs(t, ask(w, as(t.Context(), "for-other"), w.query(p, 0, forged)), &denied,
			"the API server's copy counts")
		require.NoError(t, ask(w, as(t.Context(), "for-scheduler"), w.query(p, 0, forged)))
		require.ErrorAs(t, ask(w, as(t.Context(), "for-other"), w.query(unseen, 0, func(*v1.Pod) {})), &denied)
		require.NoError(t, ask(w, as(t.Context(), "for-other"), w.query(unseen, 0, forged)),
			"advice on a pod that is not there yet")
	})
}
