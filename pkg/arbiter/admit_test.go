package arbiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/waiting"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// Two pods of three CPUs do not both get on a node of four, whatever has been said of
// them elsewhere, whether or not the watch has brought them, and whether or not the
// Bindings name their UIDs.
func TestAdmittedForWhatThePodIs(t *testing.T) {
	two := func() []*v1.Pod { return []*v1.Pod{sized("p", "3", 5), sized("q", "3", 6)} }
	for name, withUID := range map[string]bool{"with UIDs": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			anywhere(t, two, func(t *testing.T, w *world, pods []*v1.Pod) {
				for _, p := range pods {
					w.reasons(w.query(p, noVersion, small), "a")
				}
				asked := func(k int) *BindingQuery {
					q := &BindingQuery{Pod: ref(pods[k]), Node: "a"}
					if !withUID {
						q.Pod.UID = ""
					}
					return q
				}
				said, err := w.AdmitBinding(t.Context(), asked(0))
				require.NoError(t, err)
				assert.Equal(t, ref(pods[0]), said.Pod.Ref)
				assert.Equal(t, w.info(pods[0]).Request, said.Pod.Request)
				assert.EqualValues(t, 5, said.Pod.ResourceVersion)
				_, err = w.AdmitBinding(t.Context(), asked(1))
				assertOutcome(t, gates.Refused, err)
				assert.Equal(t, "Binding on a", w.on(ref(pods[0])))
			})
		})
	}
}

// A Binding that names a version is for that state of its pod and no other.
func TestVersionOfABinding(t *testing.T) {
	type testCase struct {
		version string
		edited  bool // the pod has version 7 at the API server; the watch does not know it
		outcome gates.Outcome
		gets    int
	}
	cases := map[string]testCase{
		"the one there is":               {version: "5"},
		"an older one":                   {version: "4", outcome: gates.Changed},
		"no number":                      {version: "abc", outcome: gates.Changed},
		"one that does not exist":        {version: "999", outcome: gates.Changed, gets: 1},
		"the one the watch lacks":        {version: "7", edited: true, gets: 1},
		"the watch is behind, any is so": {edited: true}, // the precondition it gets will not hold
	}
	bubble.Each(t, cases, func(t *testing.T, tc testCase) {
		p := sized("p", "1", 5)
		w := newWorld(t, p)
		if tc.edited {
			p.ResourceVersion = "7"
		}
		_, err := w.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(p), Version: tc.version, Node: "a"})
		if tc.outcome == "" {
			require.NoError(t, err)
		} else {
			assertOutcome(t, tc.outcome, err)
		}
		assert.Equal(t, tc.gets, w.api.gets)
	})
}

// A pod may end preemptible slots where a filter call has found no other capacity, and
// a trial does not use that up.
func TestAdmittedPodEndsSlots(t *testing.T) {
	p := sized("p", "3", 5)
	important(p)
	w := newWorld(t, p)
	kept := slot(4)
	kept.Preemptible = true
	require.True(t, w.ledger.ObserveSlot(kept))
	q := BindingQuery{Pod: ref(p), Node: "a"}
	trial := q
	trial.DryRun = true
	_, err := w.AdmitBinding(t.Context(), &q)
	assertOutcome(t, gates.Refused, err)
	_, err = w.AdmitBinding(t.Context(), &trial)
	assertOutcome(t, gates.Refused, err)
	w.waiting.CountLook(ref(p))
	w.waiting.AllowPreempting(ref(p))
	_, err = w.AdmitBinding(t.Context(), &trial)
	require.NoError(t, err)
	assert.Equal(t, 1, w.ledger.Stats().Slots)
	_, err = w.AdmitBinding(t.Context(), &q)
	require.NoError(t, err)
	assert.Zero(t, w.ledger.Stats().Slots)
	assert.False(t, w.waiting.MayPreempt(p.UID), "it has used its leave")
}

func TestReservedCapacityIsRedeemed(t *testing.T) {
	p := sized("p", "3", 5)
	w := newWorld(t, p)
	info := w.info(p)
	w.ledger.Reserve(ledger.NewPlan([]ledger.Placement{info.Placement("a")}, ledger.AllOrNothing,
		time.Now().Add(time.Hour)), time.Now())
	_, err := w.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(p), Node: "b"})
	assertOutcome(t, gates.Refused, err)
	_, err = w.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(p), Node: "a"})
	require.NoError(t, err)
	assert.Equal(t, "Binding on a", w.on(ref(p)))
}

// A pod that has got its node is a conflict where the ledger would have refused it, with those that were there before;
// the account of the pods stays as it is.
func TestObserve(t *testing.T) {
	w := newWorld(t)
	bound := func(name, cpu string, version int) *cluster.Pod {
		pod := sized(name, cpu, version)
		pod.Spec.NodeName = "a"
		w.observe(pod)
		return w.info(pod)
	}
	first := bound("first", "3", 3)
	require.Nil(t, w.Observe(first, waiting.Watch, ""), "there is capacity for it")
	second := bound("second", "2", 4)
	before := w.ledger.Snapshot()
	conflict := w.Observe(second, waiting.Bind, "alice")
	require.NotNil(t, conflict)
	assert.Equal(t, second.Ref, conflict.Pod)
	assert.Equal(t, []any{"a", "cpu", int64(2000), int64(1000)},
		[]any{conflict.Node, conflict.Resource, conflict.Requested, conflict.Free})
	require.Len(t, conflict.Holders, 1)
	assert.Equal(t, first.Ref, conflict.Holders[0].Pod)
	assert.Equal(t, before, w.ledger.Snapshot(), "it is only tried")
	list, _ := w.waiting.RefusalsAfter(0)
	require.Len(t, list, 1)
	r := list[0]
	assert.Equal(t, []any{"bind", "alice", "scheduler", "InsufficientResource", true},
		[]any{r.Path, r.Caller, r.Scheduler, r.Reason, r.Observed})
	assert.Empty(t, w.waiting.Waiters(func(string) bool { return true }), "the pod has its node")
}

// A server that observes keeps no scheduler from binding a pod whose request cannot be counted; other schedulers' pods
// are theirs.
func TestObservingBindsWhatCannotBeCounted(t *testing.T) {
	bubble.Each(t, map[string]bool{"for-scheduler": true, "for-other": false}, func(t *testing.T, may bool) {
		p := newPod("p")
		uncountable(p)
		w := newWorld(t, p)
		w.bring(p)
		caller := map[bool]string{true: "for-scheduler", false: "for-other"}[may]
		pod, err := w.MayBind(as(t.Context(), caller), ref(p))
		if may {
			require.NoError(t, err)
			assert.Equal(t, ref(p), pod)
			return
		}
		require.ErrorAs(t, err, new(*identity.DeniedError))
	})
}
