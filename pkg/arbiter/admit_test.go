package arbiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
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
				assertOutcome(t, Refused, err)
				state, node := w.state(pods[0])
				assert.Equal(t, ledger.Binding, state)
				assert.Equal(t, "a", node)
			})
		})
	}
}

// A Binding that names a version is for that state of its pod and no other.
func TestVersionOfABinding(t *testing.T) {
	cases := map[string]struct {
		version string
		edited  bool // the pod has version 7 at the API server; the watch does not know it
		outcome Outcome
		gets    int
	}{
		"the one there is":               {version: "5"},
		"an older one":                   {version: "4", outcome: Changed},
		"no number":                      {version: "abc", outcome: Changed},
		"one that does not exist":        {version: "999", outcome: Changed, gets: 1},
		"the one the watch lacks":        {version: "7", edited: true, gets: 1},
		"the watch is behind, any is so": {edited: true}, // the precondition it gets will not hold
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
				w.end()
			})
		})
	}
}

// The watch shows a former pod of the name: a Binding without a UID is for the present one.
func TestBindingOfANameThatWasGivenAnew(t *testing.T) {
	former := map[string]func(*v1.Pod){
		"bound":         func(p *v1.Pod) { p.Spec.NodeName = "a" },
		"finished":      func(p *v1.Pod) { p.Status.Phase = v1.PodFailed },
		"being deleted": func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
	}
	for name, change := range former {
		t.Run(name, func(t *testing.T) {
			p := sized("p", "1", 9)
			w := newWorld(t)
			w.api.put(p)
			old := sized("p", "1", 5)
			old.UID = "former"
			change(old)
			w.bring(old)
			said, err := w.AdmitBinding(t.Context(), &BindingQuery{Pod: ledger.PodRef{Namespace: "ns", Name: "p"}, Node: "a"})
			require.NoError(t, err)
			assert.Equal(t, ref(p), said.Pod.Ref)
			assert.EqualValues(t, 9, said.Pod.ResourceVersion)
			w.end()
		})
	}
}

// While nothing can be decided, nothing is admitted.
func TestAdmissionPassesTheGates(t *testing.T) {
	p := sized("p", "1", 5)
	w := newWorld(t, p)
	w.undecided.Store(new("not the leader"))
	_, err := w.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(p), Node: "a"})
	assertOutcome(t, NotReady, err)
	assert.ErrorContains(t, err, "not the leader")
	created := sized("q", "1", 0)
	created.UID = ""
	_, err = w.AdmitPod(t.Context(), created, "a", "user", false)
	assertOutcome(t, NotReady, err)
	_, err = w.AdmitPod(t.Context(), created, "a", "user", true)
	assertOutcome(t, NotReady, err)
	assert.Zero(t, w.ledger.Stats().Allocations[ledger.Binding])
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
	assertOutcome(t, Refused, err)
	_, err = w.AdmitBinding(t.Context(), &trial)
	assertOutcome(t, Refused, err)
	w.preemptors.looked(p.UID)
	w.preemptors.allow(p.UID)
	_, err = w.AdmitBinding(t.Context(), &trial)
	require.NoError(t, err)
	assert.Equal(t, 1, w.ledger.Stats().Slots)
	_, err = w.AdmitBinding(t.Context(), &q)
	require.NoError(t, err)
	assert.Zero(t, w.ledger.Stats().Slots)
	assert.False(t, w.preemptors.isAllowed(p.UID), "it has used its leave")
	w.end()
}

func TestReservedCapacityIsRedeemed(t *testing.T) {
	p := sized("p", "3", 5)
	w := newWorld(t, p)
	info := w.info(p)
	w.ledger.Reserve(ledger.NewPlan([]ledger.Placement{info.Placement("a")}, ledger.AllOrNothing, time.Now().Add(time.Hour)), time.Now())
	_, err := w.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(p), Node: "b"})
	assertOutcome(t, Refused, err)
	_, err = w.AdmitBinding(t.Context(), &BindingQuery{Pod: ref(p), Node: "a"})
	require.NoError(t, err)
	state, _ := w.state(p)
	assert.Equal(t, ledger.Binding, state)
	w.end()
}
