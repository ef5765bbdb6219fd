package decide

import (
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// Two pods of three CPUs do not both get on a node of four, whatever has been said of them elsewhere, whether or not
// the watch has brought them, and whether or not the Bindings name their UIDs.
func TestAdmittedForWhatThePodIs(t *testing.T) {
	two := func() []*v1.Pod { return []*v1.Pod{sized("p", "3", 5), sized("q", "3", 6)} }
	for _, withUID := range []bool{true, false} {
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
	bubble.Each(t, map[string]testCase{
		"the one there is":               {version: "5"},
		"an older one":                   {version: "4", outcome: gates.Changed},
		"no number":                      {version: "abc", outcome: gates.Changed},
		"one that does not exist":        {version: "999", outcome: gates.Changed, gets: 1},
		"the one the watch lacks":        {version: "7", edited: true, gets: 1},
		"the watch is behind, any is so": {edited: true}, // the precondition it gets will not hold
	}, func(t *testing.T, tc testCase) {
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

// A pod may end preemptible slots where a filter call has found no other capacity, and a trial does not use that up.
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
	require.Nil(t, w.Observe(first, requeue.Watch, ""), "there is capacity for it")
	second := bound("second", "2", 4)
	before := w.ledger.Snapshot()
	conflict := w.Observe(second, requeue.Bind, "alice")
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
// are theirs. Filter refuses it.
func TestPodThatCannotBeCounted(t *testing.T) {
	p := newPod("p")
	uncountable(p)
	w := newWorld(t, p)
	pod, err := w.MayBind(as(t.Context(), "for-scheduler"), ref(p))
	require.NoError(t, err)
	assert.Equal(t, ref(p), pod)
	_, err = w.MayBind(as(t.Context(), "for-other"), ref(p))
	require.ErrorAs(t, err, new(*auth.DeniedError))
	advice, err := w.Filter(t.Context(), w.query(p, 0, small), []string{"a"}, &Scratch{})
	require.NoError(t, err)
	assert.Equal(t, ref(p), advice.Pod.Ref)
	require.ErrorContains(t, advice.Refused, "cpu")
	assert.Empty(t, advice.Verdicts)
}

// repeating is a world in which a pod of three CPUs is asked for on node a, of which another pod has two.
type repeating struct {
	*world
	pod *v1.Pod
}

func there() *v1.Pod {
	p := sized("there", "2", 3)
	p.Spec.NodeName = "a"
	return p
}

func newRepeating(t *testing.T) *repeating {
	r := &repeating{pod: sized("p", "3", 5)}
	r.world = newWorld(t, r.pod)
	r.observe(there())
	return r
}

// bind asks for the Binding so often, once a second, as some schedulers do.
func (r *repeating) bind(times int) (said Admitted, err error) {
	for range times {
		<-time.After(time.Second)
		said, err = r.AdmitBinding(r.t.Context(), &BindingQuery{Pod: ref(r.pod), Node: "a", User: "naive"})
	}
	return said, err
}

// tells returns how often the Binding was refused at each Event on its pod.
func (r *repeating) tells() (times []string) {
	for _, said := range r.writes.Told() {
		if found := regexp.MustCompile(`^p BindingRepeated: .* has asked (\d+) times`).
			FindStringSubmatch(said); found != nil {
			times = append(times, found[1])
		}
	}
	return times
}

// times are those of the refusals among the latest.
func (r *repeating) times() (times []int) {
	list, _ := r.waiting.RefusalsAfter(0)
	for _, said := range list {
		times = append(times, said.Times)
	}
	return times
}

func (r *repeating) repeats() map[string]int {
	return r.counted("globalreserve_repeated_bindings_total", "reason")
}

// A Binding that is refused each second is among the latest refusals a few times, its pod gets as many Events, and each
// repeat is counted. The pod waits as if each had been the first.
func TestRepeatsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeating(t)
		said, err := r.bind(1000)
		assertOutcome(t, gates.Refused, err)
		assert.Equal(t, 1000, said.Times)
		assert.Equal(t, []int{0, 10, 100, 1000}, r.times())
		assert.Equal(t, []string{"10", "100", "1000"}, r.tells())
		assert.Equal(t, map[string]int{"InsufficientResource": 999}, r.repeats())
		assert.Zero(t, r.api.gets, "the watch has the pod")
		waiting := r.waiting.Waiters(func(string) bool { return true })
		require.Len(t, waiting, 1)
		assert.Equal(t, 1000, waiting[0].Times)
		_, _ = r.bind(1)
		waiting = r.waiting.Waiters(func(string) bool { return true })
		assert.Equal(t, 1001, waiting[0].Last.Times, "the last one")
		assert.Equal(t, 1000*time.Second, waiting[0].Last.At.Sub(waiting[0].Since))
	})
}

// No repeat is refused for what was: each change of what the refusal rests on is seen by the very next. What is refused
// elsewhere, to another, after a while, for another reason, or after it was granted, is no repeat.
func TestWhatIsNoRepeat(t *testing.T) {
	type testCase struct {
		granted bool
		how     func(r *repeating)
	}
	bubble.Each(t, map[string]testCase{
		"the other pod is gone": {true, func(r *repeating) { r.ledger.RemovePod(ref(there()), 0) }},
		"the pod asks for less": {true, func(r *repeating) {
			*r.pod = *sized("p", "1", 6)
			r.bring(r.pod)
		}},
		"there is a reservation for it": {true, func(r *repeating) {
			r.ledger.RemovePod(ref(there()), 0)
			placement := r.info(r.pod).Placement("a")
			r.ledger.Reserve(ledger.NewPlan([]ledger.Placement{placement}, ledger.AllOrNothing, time.Now().Add(time.Hour)),
				time.Now())
		}},
		"after a while": {how: func(*repeating) { <-time.After(repeatWithin) }},
		"another caller": {how: func(r *repeating) {
			<-time.After(repeatWithin / 2)
			_, err := r.AdmitBinding(r.t.Context(), &BindingQuery{Pod: ref(r.pod), Node: "a", User: "another"})
			assertOutcome(r.t, gates.Refused, err)
			<-time.After(repeatWithin/2 + 1)
		}},
		"another reason": {how: func(r *repeating) { r.ledger.RemoveNode("a") }},
		"it was granted": {how: func(r *repeating) {
			r.ledger.RemovePod(ref(there()), 0)
			_, err := r.bind(1)
			require.NoError(r.t, err)
			r.ledger.BindFailed(ref(r.pod), "a")
			r.allowances.remove(r.allowances.of[allowanceKey{pod: ref(r.pod)}])
			r.observe(there())
		}},
	}, func(t *testing.T, change testCase) {
		r := newRepeating(t)
		_, err := r.bind(5)
		assertOutcome(t, gates.Refused, err)
		change.how(r)
		said, err := r.bind(1)
		assert.Zero(t, said.Times, "it is a first one")
		if change.granted {
			require.NoError(t, err)
			assert.Equal(t, "Binding on a", r.on(ref(r.pod)))
			return
		}
		assertOutcome(t, gates.Refused, err)
		said, _ = r.bind(1)
		assert.Equal(t, 2, said.Times)
	})
}

// Where there are too many Events, a pod gets its Event with its next refusal; a trial is no refusal.
func TestToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeating(t)
		for range 12 {
			<-time.After(time.Second)
			for others := 0; r.waiting.TellRepeated(r.info(newPod(fmt.Sprint("other-", others))), &requeue.Refusal{},
				time.Second); others++ {
			}
			_, _ = r.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(r.pod), Node: "a", User: "naive"})
		}
		_, err := r.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(r.pod), Node: "a", User: "naive", DryRun: true})
		assertOutcome(t, gates.Refused, err)
		_, _ = r.bind(100)
		assert.Equal(t, []string{"13", "100"}, r.tells())
	})
}

// However many Bindings are refused, not more than so many are remembered.
func TestRepeatsAreBounded(t *testing.T) {
	w := newWorld(t, sized("p", "3", 5))
	info := w.info(sized("p", "3", 5)).WithCaller("naive")
	for i := range 2 * maxRepeats {
		k := &admission{pod: info, node: fmt.Sprint("node-", i)}
		w.noted(k, &gates.Error{
			Outcome: gates.Refused, Pod: info.Ref, Node: k.node,
			Rejection: &ledger.Rejection{Pod: info.Ref, Node: k.node, Reason: ledger.NodeUnknown},
		})
	}
	assert.Equal(t, maxRepeats, w.repeats.of.Len())
}
