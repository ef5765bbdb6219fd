package extender

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// reserved is a world of the nodes a, b and c with two CPUs each, all but those of a taken by slots: of b by one that
// pods of the team t may use, of c by one of the lowest priority that may be ended.
func reserved(t *testing.T) *world {
	w := newWorld(t)
	w.prefer(10)
	for _, node := range []string{"a", "b", "c"} {
		w.node(node, 2000, 8e9)
	}
	w.slot("match", "b", false)
	w.slot("idle", "c", true)
	w.match()
	return w
}

// manyNodes adds empty nodes, so many that a scheduler that was offered them alone may have others, and names them.
func (w *world) manyNodes() []string {
	names := make([]string, 100)
	for k := range names {
		names[k] = fmt.Sprintf("n%d", k)
		w.node(names[k], 2000, 8e9)
	}
	return names
}

// prefer has nodes scored by their CPU, and by what they hold for the pod.
func (w *world) prefer(match int64) {
	w.score(policy.Prioritize{
		ReservationMatch: match, Resources: []policy.ResourceWeight{{Name: v1.ResourceCPU, Weight: 1}},
	})
}

// member returns a pod that may use the reservation "match".
func member(name string) *v1.Pod {
	p := newPod(name)
	join(p)
	return p
}

func join(p *v1.Pod) { p.Labels = map[string]string{"team": "t"} }

func urgent(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](5) }

// The answer to a scheduler about a node the pod should not be on must not make it look for victims there. That is no
// error where a limit keeps the pod from all nodes that are offered, not from the slot that already counts against it.
func TestSentElsewhereIsUnresolvable(t *testing.T) {
	for name, limited := range map[string]bool{"as its slot is there": false, "for a limit": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := reserved(t)
				offered := w.manyNodes()
				if limited {
					w.quota(4000) // the two slots
				}
				w.create(member("p"))
				var got extenderv1.ExtenderFilterResult
				assert.Empty(t, w.wokenAfter(func() { got = w.filtered(newPod("p"), offered...) }))
				assert.Empty(t, got.Error)
				assert.Empty(t, got.FailedNodes)
				assert.Len(t, got.FailedAndUnresolvableNodes, len(offered))
				quota := placement.Refusals[ledger.QuotaExceeded].Text
				assert.Equal(t, limited, got.FailedAndUnresolvableNodes["n0"] == quota)
				assert.Empty(t, w.wokenAfter(w.grow(offered...)), "its nomination wakes it")
				assert.Equal(t, "b", w.Writes.Nominated("p"))
			})
		})
	}
}

// Each member of a gang is led to a slot that was made ahead for the gang, also when the gang has started: what is kept
// for the others is part of the slots by then. Like other pods, they have their choice after a few attempts.
func TestMembersAreLedToTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.prefer(10)
		rsv := &v1alpha1.Reservation{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ahead"},
			Spec:       v1alpha1.ReservationSpec{Consumers: &v1alpha1.ConsumerSpec{Gang: &v1alpha1.GangReference{Name: "ring"}}},
		}
		for _, node := range []string{"a", "b", "c", "d"} {
			w.node(node, 8000, 8e9)
		}
		for _, node := range []string{"b", "c", "d"} {
			rsv.Spec.Slots = append(rsv.Spec.Slots, v1alpha1.Slot{Name: node})
			require.True(t, w.Ledger.ObserveSlot(ledger.Slot{
				Ref: ledger.SlotRef{Namespace: "ns", Name: "ahead", Slot: node}, Node: node, Policy: ledger.Once,
				Request: &resources.Request{Amounts: []resources.Amount{{Column: resources.CPU, Value: 1000}}},
			}))
		}
		require.NoError(t, w.Question.Matcher.Set(rsv))
		var members []*v1.Pod
		for k := range 3 {
			p := newPod(fmt.Sprint("p-", k))
			p.Annotations = map[string]string{v1alpha1.GangAnnotation: "ring", v1alpha1.GangMinAnnotation: "3"}
			members = append(members, p)
			w.create(p)
		}
		led := func(p *v1.Pod) []string { return *w.filtered(p, "a", "b", "c", "d").NodeNames }
		meant := map[string][]string{}
		for _, p := range slices.Backward(members[1:]) { // the last one is on its way to the first slot
			meant[p.Name] = led(p)
		}
		first := led(members[0])
		require.ElementsMatch(t, []string{"b", "c", "d"}, slices.Concat(first, meant["p-1"], meant["p-2"]))
		require.Empty(t, w.bound(members[0], first[0]).Error)
		for _, p := range members[1:] {
			kept, _ := w.Ledger.InMemory(w.Question.Reader.Compact(p).Ref)
			assert.Equal(t, []string{kept.Within.Slot}, meant[p.Name], p.Name)
			for range 3 { // and once before
				assert.Equal(t, meant[p.Name], led(p), p.Name)
			}
			assert.Len(t, led(p), 4, "a choice, at last")
		}
	})
}

// There is capacity on a node that the scheduler has not offered. It may be one the pod
// cannot be on, so that the wait for it ends.
func TestPreemptibleCapacityAfterSomeLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := reserved(t)
		pod := newPod("p")
		urgent(pod)
		w.create(pod)
		const looks = 3
		for look := 1; look <= looks; look++ {
			offered := look == looks
			assert.Equal(t, offered, w.fits(pod, "c"), "look %d", look)
			assert.Len(t, w.wokenAfter(func() {}), min(look, looks-1), "it has to be tried again, whatever is free")
		}
	})
}

// Victims are weighed with all that is asked for the pod: here with what it may use of reserved capacity.
func TestPreemptCountsSlots(t *testing.T) {
	w := reserved(t)
	w.run("victim", "b", 1000, 0)
	pod := member("p")
	pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1500m")
	w.create(pod)
	victims := map[string]*extenderv1.MetaVictims{"b": {Pods: []*extenderv1.MetaPod{{UID: "victim"}}}}
	assert.Contains(t, w.preempted(pod, victims), "b")
	w.Question.Matcher.Remove("ns", "match")
	assert.NotContains(t, w.preempted(pod, victims), "b", "the slot is no victim")
}
