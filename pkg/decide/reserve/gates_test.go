package reserve_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/decide/gates/gatestest"
	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

const caller = "for-scheduler"

// ways are the ways to ask for a pod on node a.
var ways = map[string]func(w *world, caller string, p *v1.Pod) (*reserve.Decision, error){
	"in memory": func(w *world, caller string, p *v1.Pod) (*reserve.Decision, error) {
		return w.Reserve(as(w.t.Context(), caller), onA(caller, p))
	},
	"as an object": func(w *world, caller string, p *v1.Pod) (*reserve.Decision, error) {
		g := onA(caller, p)
		g.Durable, g.Name = true, "of-"+p.Name
		return w.Reserve(as(w.t.Context(), caller), g)
	},
	"dry run": func(w *world, caller string, p *v1.Pod) (*reserve.Decision, error) {
		g := onA(caller, p)
		g.DryRun = true
		return w.Reserve(as(w.t.Context(), caller), g)
	},
	"what-if": func(w *world, caller string, p *v1.Pod) (*reserve.Decision, error) {
		decide, err := w.WhatIf(as(w.t.Context(), caller), onA(caller, p), nil)
		if err != nil {
			return nil, err
		}
		return decide(), nil
	},
}

// A caller that the policy does not list for a scheduler with limits is refused by a gate whatever way it asks. While
// nothing can be decided, nobody passes.
func TestGatesAreOnEveryPath(t *testing.T) {
	for name, ask := range ways {
		t.Run(name, func(t *testing.T) {
			for _, tc := range []struct{ listed, undecided, want string }{
				{listed: caller},
				{listed: "another", want: "may not act for scheduler"},
				{listed: caller, undecided: "another server decides", want: "another server decides"},
			} {
				p := newPod("p")
				w := newWorld(t, p)
				w.undecided.Store(&tc.undecided)
				w.Policy.Set(gatestest.Limited("scheduler", tc.listed))
				d, err := ask(w, caller, p)
				if err == nil && d.Error != "" {
					require.Len(t, d.Refusals, 1)
					assert.Equal(t, gates.Reason, d.Refusals[0].Reason)
					err = errors.New(d.Error)
				}
				if tc.want == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorContains(t, err, tc.want)
				assert.Equal(t, tc.undecided != "", gates.IsNotReady(err))
				stats := w.Ledger.Stats()
				assert.Zero(t, stats.InMemory+stats.Slots)
				assert.Empty(t, w.written())
			}
		})
	}
}

// Whoever may act for a scheduler by a role and not by the policy, which limits it, reserves nothing for its pods in
// another scheduler's name, and nothing for another one's pods in its name.
func TestGateKnowsThePodsScheduler(t *testing.T) {
	for _, limited := range []string{"scheduler", "other"} {
		for _, durable := range []bool{false, true} {
			p := newPod("p")
			w := newWorld(t, p)
			w.Policy.Set(gatestest.Limited(limited))
			g := onA(user.Anonymous, p)
			g.Scheduler, g.Durable = "other", durable
			d, err := w.Reserve(as(t.Context(), user.Anonymous), g)
			require.NoError(t, err)
			require.Len(t, d.Refusals, 1)
			assert.Equal(t, gates.Reason, d.Refusals[0].Reason)
			assert.Contains(t, d.Refusals[0].Message, fmt.Sprintf("may not act for scheduler %q", limited))
		}
	}
}

// What a caller has counts against its limit, and others go on.
func TestCallersStayWithinTheirLimits(t *testing.T) {
	for name, objects := range map[string]int{"in memory": 0, "as an object": 2} {
		t.Run(name, func(t *testing.T) {
			pods := []*v1.Pod{newPod("first"), newPod("second"), newPod("of-others")}
			w := newWorld(t, pods...)
			w.Ledger.Observer().SetLimits(ledger.OfCaller,
				map[string]*ledger.Limits{caller: {Use: []resources.Amount{{Column: resources.CPU, Value: 1000}}}})
			reserve := func(who string, p *v1.Pod) []reserve.Refusal {
				d, err := ways[name](w, who, p)
				require.NoError(t, err)
				return d.Refusals
			}
			require.Empty(t, reserve(caller, pods[0]))
			refusals := reserve(caller, pods[1])
			require.Len(t, refusals, 1)
			assert.Equal(t, ledger.CallerLimit, refusals[0].Rejection.Reason)
			assert.Contains(t, refusals[0].Message, caller)
			require.Empty(t, reserve(ledger.Trusted, pods[2]))
			assert.Len(t, w.Store.All(), objects)
			for _, object := range w.Store.All() {
				want := map[string]string{"of-first": caller, "of-of-others": ledger.Trusted}
				assert.Equal(t, want[object.Name], object.Annotations[v1alpha1.CallerAnnotation], object.Name)
			}
		})
	}
}

// A pod that somebody reserved for counts against the limits of that caller, whoever binds it; the Binding says so.
func TestWhoReservedPays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod("p")
		w := newWorld(t, p)
		_, err := w.Reserve(as(t.Context(), caller), onA(caller, p))
		require.NoError(t, err)
		_, err = w.single.Bind(auth.Inside(t.Context()), ref(p), "a")
		require.NoError(t, err)
		assert.Equal(t, caller, w.api.caller)
	})
}

// A pod of five CPUs is refused, and that is remembered; what is granted, or only tried, is not.
func TestRefusalsAreRemembered(t *testing.T) {
	trials := []string{"dry run", "what-if"}
	for name, ask := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fits, large := newPod("fits"), newPod("large")
				large.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("5")
				w := newWorld(t, fits, large)
				holder := w.Question.For(w.info(newPod("holder")), "a")
				_, _, err := w.single.KeepAll([]ledger.Placement{holder}, time.Hour)
				require.NoError(t, err)
				d, err := ask(w, caller, fits)
				require.NoError(t, err)
				require.Empty(t, d.Error)
				<-time.After(time.Minute)
				d, err = ask(w, caller, large)
				require.NoError(t, err)
				require.Len(t, d.Refusals, 1)
				list, _ := w.Waiting.RefusalsAfter(0)
				if slices.Contains(trials, name) {
					require.Empty(t, list)
					return
				}
				require.Len(t, list, 1)
				r := list[0]
				assert.Equal(t, []string{requeue.Reserve, caller, "scheduler", "InsufficientResource"},
					[]string{r.Path, r.Caller, r.Scheduler, r.Reason})
				assert.Equal(t, ref(large), r.Rejection.Pod)
				assert.Equal(t, "a", r.Rejection.Node)
				assert.Equal(t, "cpu", r.Rejection.Resource)
				assert.EqualValues(t, 5000, r.Rejection.Requested)
				assert.NotEmpty(t, r.Rejection.Holders)
				assert.Equal(t, w.Clock.Wall(), r.At)
				require.Len(t, w.Waiting.Waiters(func(string) bool { return true }), 1)
			})
		})
	}
}

// What was reserved for a member of a gang that starts is kept for the gang when it is given back. Before it starts it
// is anybody's.
func TestGangNeedsWhatIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := []*v1.Pod{newPod("m-0"), newPod("m-1")}
		for _, p := range pods {
			p.Annotations = map[string]string{v1alpha1.GangAnnotation: "g", v1alpha1.GangMinAnnotation: "2"}
		}
		w := newWorld(t, pods...)
		giveBack := func() {
			require.Empty(t, w.reserve(w.Arbiter, onA("", pods[1])))
			before := w.Ledger.Revision()
			d, err := w.Unreserve(auth.Inside(t.Context()), onA("", pods[1]))
			require.NoError(t, err)
			require.Empty(t, d.Error)
			assert.Greater(t, w.Ledger.Revision(), before)
		}
		giveBack()
		assert.False(t, w.Has(ref(pods[1]), "a"))
		_, err := w.single.AdmitBinding(t.Context(), &decide.BindingQuery{Pod: ref(pods[0]), Node: "a", User: "somebody"})
		require.NoError(t, err)
		giveBack()
		assert.True(t, w.Has(ref(pods[1]), "a"))
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
		"its own":                     {caller: "for-scheduler", scheduler: "scheduler"},
		"another's name":              {caller: "for-other", scheduler: "scheduler", denied: "may not act for scheduler"},
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
		pods := []reserve.Pod{{Ref: ref(p), Node: "a"}, {Ref: ref(second), Node: "a"}}
		g := &reserve.Request{Scheduler: tc.scheduler, Caller: tc.caller, Pods: pods, Mode: ledger.Partial}
		if tc.namespace != "" {
			g.Pods[1].Ref, g.Pods[1].Request = ledger.PodRef{Namespace: tc.namespace, Name: "q"}, w.info(second).Request
		}
		for _, kind := range []reserve.Request{{DryRun: true}, {Durable: true, DryRun: true}, {Durable: true}, {}} {
			g.DryRun, g.Durable = kind.DryRun, kind.Durable
			before := w.Ledger.Revision()
			d, err := w.Reserve(as(t.Context(), tc.caller), g)
			if tc.denied == "" {
				require.NoError(t, err)
				require.Empty(t, d.Error)
				continue
			}
			require.ErrorAs(t, err, new(*auth.DeniedError))
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
		g := &reserve.Request{
			Scheduler: "scheduler", Caller: "for-other", Pods: []reserve.Pod{{Ref: ref(p), Node: "a"}},
			Mode: ledger.AllOrNothing,
		}
		before := w.Ledger.Revision()
		_, err := w.Unreserve(as(t.Context(), "for-other"), g)
		require.ErrorAs(t, err, new(*auth.DeniedError))
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
func TestPodsToComeAreTheirSchedulers(t *testing.T) {
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
			w.Arbiter = w.server(func(o *reserve.Options) {
				o.Ledger = gates.NewGatedLedger(w.Ledger, w.Clock, gates.New(w.Policy), func() string {
					if looks++; looks > 1 { // the first is before the pods are looked for
						watched(w, p)
					}
					return ""
				})
			})
		}
		podToCome := ledger.PodRef{Namespace: p.Namespace, Name: p.Name}
		g := &reserve.Request{
			Scheduler: "other", Caller: tc.caller, Mode: ledger.AllOrNothing, Durable: tc.durable,
			Pods: []reserve.Pod{{Ref: podToCome, Node: "a", Request: w.info(p).Request}},
		}
		d, err := w.Reserve(as(t.Context(), tc.caller), g)
		require.NoError(t, err)
		require.Empty(t, d.Error)
		require.Equal(t, !tc.during, w.Has(podToCome, "a"))
		w.API.Put(p)
		if !tc.during {
			tc.comes(w, p)
		}
		assert.Equal(t, tc.stays, w.Has(ref(p), "a"))
		if tc.stays {
			return
		}
		own := &reserve.Request{
			Scheduler: "scheduler", Caller: "for-scheduler", Pods: []reserve.Pod{{Ref: ref(p), Node: "b"}},
		}
		d, err = w.Reserve(as(t.Context(), "for-scheduler"), own)
		require.NoError(t, err)
		require.Empty(t, d.Error)
		_, err = w.single.Bind(as(t.Context(), "for-scheduler"), ref(p), "b")
		require.NoError(t, err)
	})
}
