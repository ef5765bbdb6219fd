package requeue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/background"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// slot keeps two CPUs of a node, which every pod of the namespace may use.
func (w *world) slot(name, node string, policy ledger.AllocatePolicy) ledger.SlotRef {
	return w.slotIn("ns", name, node, policy)
}

func (w *world) slotIn(namespace, name, node string, policy ledger.AllocatePolicy) ledger.SlotRef {
	ref := ledger.SlotRef{Namespace: namespace, Name: name, Slot: "s"}
	slot := ledger.Slot{Ref: ref, Node: node, Policy: policy, Request: placementtest.Request(2000)}
	require.True(w.t, w.ledger.ObserveSlot(slot))
	w.reserveFor(ref, policy, &metav1.LabelSelector{})
	return ref
}

// slowNominator takes a second for each write.
type slowNominator struct{ *fakeAPI }

func (n slowNominator) Nominate(ctx context.Context, pod ledger.PodRef, version uint64, node string) error {
	<-time.After(time.Second)
	return n.fakeAPI.Nominate(ctx, pod, version, node)
}

// Many nominations of one namespace do not keep that of another one waiting.
func TestNamespacesTakeTurnsInNominations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 40
		nodes := make([]string, many+1)
		for i := range nodes {
			nodes[i] = fmt.Sprint("node-", i)
		}
		w := makeWorld(t, nodes...)
		w.Nominator = slowNominator{w.api}
		w.Stop = background.Run(t, w.Run)
		synctest.Wait()
		for i := range many {
			w.slot(fmt.Sprint("r-", i), nodes[i], ledger.Once)
			require.Equal(t, "elsewhere", w.direct(pod(fmt.Sprint("p-", i)), sample()...))
		}
		advance(settle)
		w.slotIn("other", "r", nodes[many], ledger.Once)
		p := pod("one")
		p.Ref.Namespace = "other"
		require.Equal(t, "elsewhere", w.direct(p, sample()...))
		advance(4 * time.Second)
		assert.Contains(t, w.api.written(), "one -> "+nodes[many], "after %d of the others", len(w.api.written())-1)
	})
}

func pod(name string) *cluster.Pod {
	return &cluster.Pod{
		Ref:     ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Request: placementtest.Request(2000), Constraints: &cluster.Constraints{},
	}
}

func (w *world) usable(p *cluster.Pod) []ledger.UsableSlot {
	placement := w.Question.For(p, "")
	return w.ledger.UsableSlots(&placement)
}

// direct is one filter call; the result is the node kept, "elsewhere" or "".
func (w *world) direct(p *cluster.Pod, offered ...string) string {
	return w.directNominated(p, "", offered...)
}

// directNominated is that of a scheduler that knows of a nomination.
func (w *world) directNominated(p *cluster.Pod, nominated string, offered ...string) string {
	node, elsewhere := w.Direct(p, nominated, w.usable(p), offered)
	if elsewhere {
		return "elsewhere"
	}
	return node
}

func (w *world) bind(p *cluster.Pod, node string) {
	placement := w.Question.For(p, node)
	_, rejection := w.ledger.StartBind(&placement, time.Now())
	require.Nil(w.t, rejection)
	require.True(w.t, w.ledger.Confirm(p.Ref, node))
	w.Settled(p.Ref.UID)
}

func (w *world) expect(what []string) {
	w.t.Helper()
	synctest.Wait()
	assert.Equal(w.t, what, w.api.written())
}

// sample is what kube-scheduler offers of a large cluster.
func sample() []string {
	nodes := make([]string, MinSample)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("other-%d", i)
	}
	return nodes
}

// A pod that comes back without its node after it was nominated may still have
// the nomination: writing it again is no change then, and wakes nobody.
func TestNominatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.slot("r", "a", ledger.Once)
		p := pod("p")
		assert.Equal(t, "elsewhere", w.direct(p, sample()...))
		advance(settle)
		w.expect([]string{"p -> a"})
		assert.Empty(t, w.api.patched(), "the nomination wakes it")
		assert.Equal(t, "elsewhere", w.directNominated(p, "a", sample()...))
		advance(settle)
		w.expect([]string{"p -> a", "p -> a"})
		assert.Equal(t, []string{"p"}, w.api.patched(), "it is woken some other way")
		assert.Empty(t, w.directNominated(p, "a", sample()...), "it has its choice")
	})
}

// Five pods come back at once to three slots: each slot is one pod's.
func TestOneSlotForOnePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c", "d")
		for _, node := range []string{"a", "b", "c"} {
			w.slot("r-"+node, node, ledger.Once)
		}
		all := []string{"d", "c", "b", "a"}
		got := map[string]int{}
		pods := []*cluster.Pod{pod("1"), pod("2"), pod("3"), pod("4"), pod("5")}
		for _, p := range pods {
			got[w.direct(p, all...)]++
		}
		assert.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1, "": 2}, got)
		assert.Equal(t, "a", w.direct(pods[0], all...), "asked again, the plan is the same")
		node, ok := w.Plan(pods[0], w.usable(pods[0]), all)
		assert.Equal(t, "a", node)
		assert.True(t, ok)
		_, ok = w.Plan(pods[4], w.usable(pods[4]), all)
		assert.False(t, ok, "prioritize prefers nothing for a pod without a plan")

		w.bind(pods[0], "a")
		assert.Empty(t, w.direct(pods[3], all...), "that slot is used up")
		w.Settled(pods[1].Ref.UID)
		assert.Equal(t, "b", w.direct(pods[3], all...), "a pod that went leaves its slot to others")
		advance(planLife)
		assert.Equal(t, "b", w.direct(pods[4], all...), "a pod nobody asks for any more keeps nobody away")
		w.expect(nil)
	})
}

func TestSharedSlotsAreForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.slot("r", "a", ledger.Aligned)
		for _, name := range []string{"1", "2", "3"} {
			assert.Equal(t, "a", w.direct(pod(name), "a", "b"))
		}
	})
}

func TestNodeThatWasNotOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.slot("r", "a", ledger.Once)
		assert.Empty(t, w.direct(pod("small"), "b", "c"), "all that is feasible was offered")
		p := pod("p")
		for range 10 { // it is woken for other reasons meanwhile
			assert.Equal(t, "elsewhere", w.direct(p, sample()...))
		}
		w.expect(nil)
		advance(settle)
		w.expect([]string{"p -> a"})
		assert.Equal(t, "a", w.direct(p, "a"), "the scheduler comes back with the node")
		w.bind(p, "a")
		advance(time.Minute)
		w.expect([]string{"p -> a"})
	})
}

func TestOfferedSlotsComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.slot("r-a", "a", ledger.Once)
		w.slot("r-b", "b", ledger.Once)
		p := pod("p")
		assert.Equal(t, "elsewhere", w.direct(p, sample()...))
		assert.Equal(t, "b", w.direct(p, append(sample(), "b")...))
		q := pod("q")
		assert.Equal(t, "a", w.direct(q, "a", "b"), "the plan for a was given up")
	})
}

// A plan is a preference: who is not bound after some attempts has its choice.
func TestEffortIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.slot("r", "a", ledger.Once)
		p, q := pod("p"), pod("q")
		var got []string
		for range 6 {
			got = append(got, w.direct(p, "a", "b"))
		}
		assert.Equal(t, []string{"a", "a", "a", "a", "", ""}, got)
		node, ok := w.Plan(p, w.usable(p), []string{"a", "b"})
		assert.Equal(t, "a", node, "it is preferred still")
		assert.True(t, ok)
		w.Settled(p.Ref.UID)

		got = nil
		for _, nominated := range []string{"", "a", "a", "a"} {
			got = append(got, w.directNominated(q, nominated, sample()...))
			advance(time.Second)
		}
		assert.Equal(t, []string{"elsewhere", "elsewhere", "", ""}, got)
		w.expect([]string{"q -> a", "q -> a"})
	})
}

// Other events than the nomination may have the scheduler try a pod many times before it has seen that.
func TestAttemptsThatDoNotKnowOfTheNomination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.slot("r", "a", ledger.Once)
		p := pod("p")
		for range 10 {
			assert.Equal(t, "elsewhere", w.direct(p, sample()...))
			advance(settle)
		}
		assert.Equal(t, "a", w.direct(p, "a"), "the scheduler comes back with the node")
		w.Settled(p.Ref.UID)

		q := pod("q")
		assert.Equal(t, "elsewhere", w.direct(q, sample()...))
		advance(patience)
		assert.Equal(t, "elsewhere", w.direct(q, sample()...))
		advance(settle)
		assert.Empty(t, w.direct(q, sample()...), "this scheduler does not look at nominations")
	})
}

func TestNominationsAreCleared(t *testing.T) {
	type testCase struct {
		end     func(w *world)
		cleared bool
	}
	release := func(w *world) { w.ledger.ReleaseSlots("ns", "r") }
	tests := map[string]testCase{
		"the slot is released": {release, true},
		"another pod used it":  {func(w *world) { w.bind(pod("q"), "a") }, true},
		"the node is cordoned": {func(w *world) {
			w.ledger.ObserveNode(ledger.NodeObservation{Name: "a", Unschedulable: true, Allocatable: []resources.Amount{
				{Column: resources.CPU, Value: 4000}, {Column: resources.Pods, Value: 110},
			}})
		}, true},
		"the pod is being bound with it": {func(w *world) {
			placement := w.Question.For(pod("p"), "a")
			_, rejection := w.ledger.StartBind(&placement, time.Now())
			require.Nil(w.t, rejection)
		}, false},
		"something else happens": {func(w *world) { w.ledger.ObserveNode(ledger.NodeObservation{Name: "b"}) }, false},
		"the pod went":           {func(w *world) { w.Settled(pod("p").Ref.UID); release(w) }, false},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		w := newWorld(t, "a", "b")
		w.slot("r", "a", ledger.Once)
		require.True(t, w.planNow(pod("p")))
		writes := []string{"p -> a"}
		w.expect(writes)
		tt.end(w)
		advance(time.Minute)
		if tt.cleared {
			writes = append(writes, "p -x a")
		}
		w.expect(writes)
		assert.Empty(t, w.api.patched())
	})
}

// The pod was refused everything, and then there was nothing to send it to.
func TestSlotGoneBeforeTheNomination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		slot := w.slot("r", "a", ledger.Once)
		blocked := make(chan struct{})
		w.api.nomination = func(string) error { <-blocked; return errors.New("not now") }
		require.Equal(t, "elsewhere", w.direct(pod("p"), sample()...))
		w.ledger.ReleaseSlots(slot.Namespace, slot.Name)
		advance(settle + sweepDelay)
		close(blocked)
		advance(time.Minute)
		assert.Equal(t, []string{"p"}, w.api.patched())
	})
}

func TestPlanNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		assert.False(t, w.planNow(pod("p")), "no slot")
		w.slot("r", "a", ledger.Once)
		assert.True(t, w.planNow(pod("p")))
		assert.False(t, w.planNow(pod("q")), "it is meant for another pod")
		w.expect([]string{"p -> a"})
	})
}

func TestFailedWrites(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	type testCase struct {
		err     error
		times   int
		writes  int
		givenUp []string
	}
	tests := map[string]testCase{
		"the API server is away for a while": {errors.New("refused"), 2, 3, nil},
		"the API server is away for long":    {errors.New("refused"), 100, 1 + maxFailures, []string{"p"}},
		"no right to do so": {
			apierrors.NewForbidden(resource, "p", errors.New("no")), 100, 1, []string{"p"},
		},
		"the pod is gone":        {apierrors.NewNotFound(resource, "p"), 100, 1, nil},
		"the pod is another one": {apierrors.NewConflict(resource, "p", errors.New("uid")), 100, 1, nil},
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
		w := newWorld(t, "a")
		w.slot("r", "a", ledger.Once)
		w.api.nomination = func(string) error {
			if len(w.api.writes) <= tt.times {
				return tt.err
			}
			return nil
		}
		p := pod("p")
		require.Equal(t, "elsewhere", w.direct(p, sample()...))
		advance(time.Hour)
		assert.Len(t, w.api.written(), tt.writes)
		assert.Equal(t, tt.givenUp, w.api.patched())
		if tt.givenUp != nil {
			assert.Empty(t, w.direct(p, sample()...), "it is not refused for nothing again")
		}
	})
}

// A pod whose claims of devices cannot be met with a slot is not sent there.
func TestPodsWithClaims(t *testing.T) {
	bubble.Each(t, map[string]bool{"the device is there": true, "it is not": false}, func(t *testing.T, there bool) {
		w := newWorld(t, "a")
		w.slot("r", "a", ledger.Once)
		p := pod("p")
		p.Devices = &cluster.DeviceAnnotations{Claims: []string{"c"}}
		if there {
			placementtest.GPUs(w.ledger, "a", "gpu-0")
		}
		assert.Equal(t, there, w.planNow(p))
		if there {
			w.expect([]string{"p -> a"})
			w.ledger.ObserveDevices("a", nil)
			assert.False(t, w.stillUsable(w.plan("uid-p")))
		}
	})
}
