package gang_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/arbiter/gang"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/test/bubble"
)

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
			denied: "may not reserve in namespace foreign",
		},
		"listed, but not in the namespace": {
			caller: "only-in-foreign", scheduler: "scheduler",
			denied: "may not reserve in namespace ns",
		},
	}, func(t *testing.T, tc testCase) {
		p, second := newPod("p"), newPod("q")
		w := newWorld(t)
		w.API.Put(p)
		w.API.Put(second)
		if !tc.unseen {
			w.bring(p, second)
		}
		rules := policy.Default()
		rules.Schedulers = []policy.Scheduler{
			{Name: "scheduler", Callers: []string{"listed", "only-in-ns", "only-in-foreign"}},
			{Name: "other", Callers: []string{"listed", "elsewhere"}},
		}
		w.Policy.Set(rules)
		pods := []gang.Pod{{Ref: ref(p), Node: "a"}, {Ref: ref(second), Node: "a"}}
		g := &gang.Request{Scheduler: tc.scheduler, Caller: tc.caller, Pods: pods, Mode: ledger.Partial}
		if tc.namespace != "" {
			g.Pods[1].Ref, g.Pods[1].Request = ledger.PodRef{Namespace: tc.namespace, Name: "q"}, w.info(second).Request
		}
		for _, kind := range []gang.Request{{DryRun: true}, {Durable: true, DryRun: true}, {Durable: true}, {}} {
			g.DryRun, g.Durable = kind.DryRun, kind.Durable
			before := w.Ledger.Revision()
			d, err := w.Reserve(as(t.Context(), tc.caller), g)
			if tc.denied == "" {
				require.NoError(t, err)
				require.Empty(t, d.Error)
				continue
			}
			require.ErrorAs(t, err, new(*identity.DeniedError))
			require.ErrorContains(t, err, tc.denied)
			require.Equal(t, before, w.Ledger.Revision(), "nothing is reserved, of no pod")
		}
	})
}

// Who gives back has to act for the scheduler. No right in the namespace is asked for: what it gives back is its own.
func TestWhoMayGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod("p")
		w := newWorld(t, p)
		g := &gang.Request{
			Scheduler: "scheduler", Caller: "for-other", Pods: []gang.Pod{{Ref: ref(p), Node: "a"}},
			Mode: ledger.AllOrNothing,
		}
		before := w.Ledger.Revision()
		_, err := w.Unreserve(as(t.Context(), "for-other"), g)
		require.ErrorAs(t, err, new(*identity.DeniedError))
		assert.Equal(t, before, w.Ledger.Revision())
		rules := policy.Default()
		rules.Schedulers = []policy.Scheduler{{Name: "scheduler", Callers: []string{"only-in-foreign"}}}
		w.Policy.Set(rules)
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
		cluster.ObserveUnbound(w.Ledger.Observer(), w.Log, w.info(p))
	}
	read := func(w *world, p *v1.Pod) {
		_, err := w.single.ReadPod(w.t.Context(), ref(p))
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
			w.Arbiter = w.server(func(o *gang.Options) {
				o.Ledger = gates.NewGatedLedger(w.Ledger, w.Clock, gates.New(w.Policy), func() string {
					if looks++; looks > 1 { // the first is before the pods are looked for
						watched(w, p)
					}
					return ""
				})
			})
		}
		unborn := ledger.PodRef{Namespace: p.Namespace, Name: p.Name}
		g := &gang.Request{
			Scheduler: "other", Caller: tc.caller, Mode: ledger.AllOrNothing, Durable: tc.durable,
			Pods: []gang.Pod{{Ref: unborn, Node: "a", Request: w.info(p).Request}},
		}
		d, err := w.Reserve(as(t.Context(), tc.caller), g)
		require.NoError(t, err)
		require.Empty(t, d.Error)
		require.Equal(t, !tc.during, w.Has(unborn, "a"))
		w.API.Put(p)
		if !tc.during {
			tc.comes(w, p)
		}
		assert.Equal(t, tc.stays, w.Has(ref(p), "a"))
		if tc.stays {
			return
		}
		own := &gang.Request{Scheduler: "scheduler", Caller: "for-scheduler", Pods: []gang.Pod{{Ref: ref(p), Node: "b"}}}
		d, err = w.Reserve(as(t.Context(), "for-scheduler"), own)
		require.NoError(t, err)
		require.Empty(t, d.Error)
		_, err = w.single.Bind(as(t.Context(), "for-scheduler"), ref(p), "b")
		require.NoError(t, err)
	})
}
