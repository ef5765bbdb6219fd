package arbiter

import (
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/waiting"
)

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

// tells are how often the Binding was refused each time that its pod was told.
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

// A Binding that is refused each second is among the latest refusals a few times, its pod is told as often, and each
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
	changes := map[string]struct {
		granted bool
		how     func(r *repeating)
	}{
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
			_, err := r.AdmitBinding(r.t.Context(), &BindingQuery{Pod: ref(r.pod), Node: "a", User: "another"})
			assertOutcome(r.t, gates.Refused, err)
			<-time.After(repeatWithin)
		}},
		"another reason": {how: func(r *repeating) { r.ledger.RemoveNode("a") }},
		"it was granted": {how: func(r *repeating) {
			r.ledger.RemovePod(ref(there()), 0)
			_, err := r.bind(1)
			require.NoError(r.t, err)
			r.ledger.BindFailed(ref(r.pod), "a")
			r.pending.remove(r.pending.of[ref(r.pod)])
			r.observe(there())
		}},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
		})
	}
}

// Where too many pods are told of too much, one of them is told with its next refusal; a trial is no refusal.
func TestToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeating(t)
		for range 12 {
			<-time.After(time.Second)
			for others := 0; r.waiting.TellRepeated(r.info(newPod(fmt.Sprint("other-", others))), &waiting.Refusal{},
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
