package decide

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/bubble"
)

func claiming(name, claims string) *v1.Pod {
	p := newPod(name)
	p.Annotations = map[string]string{
		v1alpha1.ExtendedResourceClaimsAnnotation: claims,
		v1alpha1.ExtendedResourcesAnnotation:      "gpu-9", // a copy of another pod
	}
	return p
}

// freeDevices lists the devices of node a that nobody has.
func (w *world) freeDevices() (free []string) {
	view, _, _ := w.ledger.Node("a")
	for _, d := range view.Devices {
		if d.Free {
			free = append(free, d.ID)
		}
	}
	return free
}

func TestBindWithClaims(t *testing.T) {
	type testCase struct {
		node, claims string
		reply        reply
		outcome      gates.Outcome
		given        string // of the Binding, if one was sent
		free         []string
	}
	bubble.Each(t, map[string]testCase{
		"one device":         {"a", "c", honest, gates.Bound, "gpu-0", []string{"gpu-1"}},
		"two":                {"a", "c, d", honest, gates.Bound, "gpu-0,gpu-1", nil},
		"too many":           {"a", "c,d,e", honest, gates.Refused, "", []string{"gpu-0", "gpu-1"}},
		"not on this node":   {"b", "c", honest, gates.Refused, "", []string{"gpu-0", "gpu-1"}},
		"no such claim":      {"a", "missing", honest, gates.Refused, "", []string{"gpu-0", "gpu-1"}},
		"bad annotation":     {"a", "c,", honest, gates.Refused, "", []string{"gpu-0", "gpu-1"}},
		"the bind fails":     {"a", "c", reply{err: errForbidden}, gates.Failed, "gpu-0", []string{"gpu-0", "gpu-1"}},
		"the answer is lost": {"a", "c", lost, gates.Bound, "gpu-0", []string{"gpu-1"}},
	}, func(t *testing.T, tt testCase) {
		p := claiming("p", tt.claims)
		w := newWorld(t, p)
		placementtest.GPUs(w.ledger, "a", "gpu-0", "gpu-1")
		sent := ""
		w.api.onBind = func(b *v1.Binding) { sent = b.Annotations[v1alpha1.ExtendedResourcesAnnotation] }
		w.api.bind = func(int) reply { return tt.reply }
		if err := w.bindPod(p, tt.node); tt.outcome == gates.Bound {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, &gates.Error{Outcome: tt.outcome})
		}
		assert.Equal(t, tt.given, sent)
		assert.Equal(t, tt.free, w.freeDevices())
	})
}

// TestBindByCount binds pods that ask for GPUs by count beside one with a claim: they are given devices, too, and
// there are never more than the node has.
func TestBindByCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byCount := func(name string) *v1.Pod {
			p := newPod(name)
			p.Annotations = map[string]string{v1alpha1.ExtendedResourcesAnnotation: "gpu-9"} // a copy of another pod
			p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
			return p
		}
		claims, first, second := claiming("claims", "c"), byCount("first"), byCount("second")
		w := newWorld(t, claims, first, second)
		gpus, ok := w.ledger.Table().Offer("nvidia.com/gpu")
		require.True(t, ok)
		view, _, _ := w.ledger.Node("a")
		offered := []resources.Amount{{Column: gpus, Value: 2}}
		for _, amount := range view.Amounts {
			column, _ := w.ledger.Table().Lookup(amount.Resource)
			offered = append([]resources.Amount{{Column: column, Value: amount.Allocatable}}, offered...)
		}
		w.ledger.ObserveNode(ledger.NodeObservation{Name: "a", Allocatable: offered})
		placementtest.GPUs(w.ledger, "a", "gpu-0", "gpu-1")
		sent := map[string]string{}
		w.api.onBind = func(b *v1.Binding) { sent[b.Name] = b.Annotations[v1alpha1.ExtendedResourcesAnnotation] }
		require.NoError(t, w.bindPod(first, "a"))
		require.NoError(t, w.bindPod(claims, "a"))
		require.ErrorIs(t, w.bindPod(second, "a"), &gates.Error{Outcome: gates.Refused})
		assert.Equal(t, map[string]string{"first": "gpu-0", "claims": "gpu-1"}, sent)
	})
}

// TestBindOfPodWhoseClaimsChanged binds a pod that names other claims by now than when
// its capacity was reserved, and than when it was filtered.
func TestBindOfPodWhoseClaimsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := claiming("p", "c,d"), claiming("p", "e")
		before.ResourceVersion, after.ResourceVersion = "1", "2"
		w := newWorld(t, after)
		placementtest.GPUs(w.ledger, "a", "gpu-0", "gpu-1")
		info := w.info(before)
		placement := info.Placement("a")
		placement.Devices = placementtest.Claims(info)
		require.Equal(t, 1, w.ledger.Reserve(ledger.NewPlan([]ledger.Placement{placement}, ledger.AllOrNothing, time.Time{}),
			time.Now()).Granted)
		require.Empty(t, w.freeDevices())
		w.bring(before)
		w.pods.named(after.UID, 2)
		sent := ""
		w.api.onBind = func(b *v1.Binding) { sent = b.Annotations[v1alpha1.ExtendedResourcesAnnotation] }
		require.NoError(t, w.bindPod(after, "a"))
		assert.Equal(t, "gpu-0", sent)
		assert.Equal(t, []string{"gpu-1"}, w.freeDevices(), "the other device is given back")
		allocation, ok := w.ledger.Allocation(ref(after))
		require.True(t, ok)
		assert.Equal(t, "ns/e", allocation.Given[0].Claim.String())
	})
}

// offer lets all pods of the namespace use the slot of capacityRef.
func (w *world) offer(change func(*v1alpha1.Reservation)) {
	rsv := &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: capacityRef.Namespace, Name: capacityRef.Name},
		Spec: v1alpha1.ReservationSpec{
			Slots:     []v1alpha1.Slot{{Name: capacityRef.Slot}},
			Consumers: &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{}},
		},
	}
	if change != nil {
		change(rsv)
	}
	require.NoError(w.t, w.question.Matcher.Set(rsv))
}

var capacityRef = ledger.SlotRef{Namespace: "ns", Name: "r", Slot: "s"}

// slot keeps so many CPUs of node a.
func slot(cpus int64) ledger.Slot {
	return ledger.Slot{Ref: capacityRef, Node: "a", Policy: ledger.Once, Request: placementtest.Request(1000 * cpus)}
}

func TestBindWithSlots(t *testing.T) {
	const ours, godels = "globalreserve.io/matched-reservation", "godel.bytedance.com/matched-reservation-placeholder"
	annotated := func(key, value string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Annotations = map[string]string{key: value} }
	}
	type reservation = v1alpha1.Reservation
	open := func(*reservation) {}
	uid := func(r *reservation) { r.UID = "7" }
	godel := func(r *reservation) { r.Annotations = map[string]string{v1alpha1.GodelReservationAnnotation: "true"} }
	type testCase struct {
		node    string
		offer   func(*reservation) // nil: nobody may use it
		pod     func(*v1.Pod)
		reply   reply
		outcome gates.Outcome
		want    map[string]string
		holds   int // afterwards
	}
	bubble.Each(t, map[string]testCase{
		"its slot":        {"a", open, nil, honest, gates.Bound, map[string]string{ours: "ns/r/s"}, 0},
		"nobody else's":   {"a", nil, nil, honest, gates.Refused, nil, 1},
		"not on its node": {"b", open, nil, honest, gates.Bound, nil, 1},
		"the bind fails":  {"a", open, nil, reply{err: errForbidden}, gates.Failed, map[string]string{ours: "ns/r/s"}, 1},
		"a Gödel pod": {
			"a", open, annotated("godel.bytedance.com/reservation-index", "i"), honest, gates.Bound,
			map[string]string{ours: "ns/r/s", godels: "ns/r-placeholder"},
			0,
		},
		"an object": {"a", uid, nil, honest, gates.Bound, map[string]string{ours: "ns/r/s", ours + "-uid": "7"}, 0},
		"Gödel reservation": {
			"a", godel, nil, honest, gates.Bound,
			map[string]string{ours: "ns/r/s", godels: "ns/r-placeholder"},
			0,
		},
		"a copied pod": {"b", nil, annotated(ours, "ns/old/s"), honest, gates.Bound, map[string]string{ours: ""}, 1},
	}, func(t *testing.T, tt testCase) {
		p := newPod("p")
		if tt.pod != nil {
			tt.pod(p)
		}
		w := newWorld(t, p)
		if tt.offer != nil {
			w.offer(tt.offer)
		}
		require.True(t, w.ledger.ObserveSlot(slot(4)))
		var sent map[string]string
		w.api.onBind = func(b *v1.Binding) {
			sent = b.Annotations
			if delete(sent, v1alpha1.CallerAnnotation); len(sent) == 0 {
				sent = nil
			}
		}
		w.api.bind = func(int) reply { return tt.reply }
		err := w.bindPod(p, tt.node)
		if tt.outcome == gates.Bound {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, &gates.Error{Outcome: tt.outcome})
		}
		assert.Equal(t, tt.want, sent)
		assert.Equal(t, tt.holds, w.ledger.Stats().Slots)
	})
}

// onPost changes a pod when the first of its Bindings, or each of them, comes to the API server.
func (w *world) onPost(p *v1.Pod, each bool, change func(p *v1.Pod)) {
	posts := 0
	w.api.onBind = func(b *v1.Binding) {
		if b.Name != p.Name {
			return
		}
		posts++
		if posts == 1 || each {
			change(p)
			w.api.touch(p)
		}
	}
}

func asksForMore(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2") }

// A scheduler writes such a condition right before it binds.
func hasCondition(p *v1.Pod) {
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse})
	p.Status.NominatedNodeName = "a"
}

// TestBindOfPodThatChanges changes a pod between the decision on it and its Binding. It asks for all that is left of
// the node.
func TestBindOfPodThatChanges(t *testing.T) {
	type testCase struct {
		change  func(p *v1.Pod)
		each    bool // with every POST
		bind    func(n int) reply
		get     func(n int) error
		outcome gates.Outcome
		posts   int
		gets    int
		within  time.Duration // 0: at once
		again   gates.Outcome // of another try, by the pod as it is then
	}
	bubble.Each(t, map[string]testCase{
		"it asks for more": {change: asksForMore, outcome: gates.Changed, posts: 1, gets: 1, again: gates.Refused},
		"it asks for more, and the answer is lost": {
			change: asksForMore, bind: script(lost), outcome: gates.Changed, posts: 1, gets: 1, again: gates.Refused,
		},
		"it asks for more, and the Binding comes late": {
			change: asksForMore, bind: script(late(time.Second)), outcome: gates.Changed, posts: 1, gets: 1,
			again: gates.Refused,
		},
		"it asks for more, and the first read fails": {
			change: asksForMore, bind: script(lost), get: fail(1, errReset),
			outcome: gates.Changed, posts: 2, gets: 2, within: time.Second, again: gates.Refused,
		},
		"it has other labels": {
			change:  func(p *v1.Pod) { p.Labels = map[string]string{"app": "another"} },
			outcome: gates.Changed, posts: 1, gets: 1, again: gates.Bound,
		},
		"it cannot be counted": {
			change:  func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("-1") },
			outcome: gates.Changed, posts: 1, gets: 1, again: gates.Failed,
		},
		"it has another condition": {change: hasCondition, outcome: gates.Bound, posts: 2, gets: 1, again: gates.Bound},
		"it has another condition, and the answer is lost": {
			change: hasCondition, bind: script(lost), outcome: gates.Bound, posts: 2, gets: 1, within: 100 * time.Millisecond,
			again: gates.Bound,
		},
		"it has another condition, and the Binding comes late": {
			change: hasCondition, bind: script(late(10 * time.Millisecond)), outcome: gates.Bound, posts: 2, gets: 1,
			within: 100 * time.Millisecond, again: gates.Bound,
		},
		"it has another condition, and rights are withdrawn": {
			change: hasCondition, bind: script(unsent, reply{err: errForbidden}),
			outcome: gates.Failed, posts: 2, gets: 1, within: 100 * time.Millisecond, again: gates.Bound,
		},
		"it changes all the time": {
			change: hasCondition, each: true, outcome: gates.Failed, posts: many, gets: many,
			within: bindTimeout,
		},
	}, func(t *testing.T, tt testCase) {
		p := newPod("p")
		others := []*v1.Pod{newPod("x"), newPod("y"), newPod("z")}
		w := newWorld(t, append(others, p)...)
		for _, other := range others {
			require.NoError(t, w.bindPod(other, "a"))
		}
		w.api.posts = 0
		w.api.bind, w.api.get = tt.bind, tt.get
		w.onPost(p, tt.each, tt.change)
		start := time.Now()
		assertOutcome(t, tt.outcome, w.bindPod(p, "a"))
		assert.LessOrEqual(t, time.Since(start), tt.within)
		assert.Equal(t, settled(tt.outcome), w.on(ref(p)))
		if tt.posts == many {
			assert.Less(t, w.api.posts, 30, "POSTs")
		} else {
			assert.Equal(t, tt.posts, w.api.posts, "POSTs")
			assert.Equal(t, tt.gets, w.api.gets, "GETs")
		}
		w.api.onBind, w.api.bind = nil, nil
		if tt.again != "" {
			assertOutcome(t, tt.again, w.bindPod(p, "a"))
		}
		w.end() // after what comes late
		assert.Equal(t, w.on(ref(p)) == "Bound on a", w.api.read("ns", "p").Spec.NodeName == "a", "the ledger is right")
		if asked := p.Spec.Containers[0].Resources.Requests.Cpu(); asked.Value() > 1 {
			assert.Empty(t, w.api.read("ns", "p").Spec.NodeName, "the node is overcommitted")
		}
	})
}

// TestBindOfPodThatNamesNoClaimsAnyMore takes the claims off a pod between the decision on it and its Binding. What is
// seen of such a pod, once it is bound, says that it has no devices.
func TestBindOfPodThatNamesNoClaimsAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := claiming("p", "c"), claiming("other", "d")
		w := newWorld(t, p, other)
		placementtest.GPUs(w.ledger, "a", "gpu-0")
		w.onPost(p, false, func(p *v1.Pod) { delete(p.Annotations, v1alpha1.ExtendedResourceClaimsAnnotation) })
		assertOutcome(t, gates.Changed, w.bindPod(p, "a"))
		assert.Empty(t, w.api.read("ns", "p").Spec.NodeName)
		require.NoError(t, w.bindPod(other, "a"))
		require.NoError(t, w.bindPod(p, "a"))
		w.observe(p)
		assert.Equal(t, "gpu-0", w.api.read("ns", "other").Annotations[v1alpha1.ExtendedResourcesAnnotation])
		assert.Empty(t, w.api.read("ns", "p").Annotations[v1alpha1.ExtendedResourcesAnnotation], "the device is given twice")
	})
}
