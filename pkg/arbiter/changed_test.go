package arbiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gates"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/test/bubble"
)

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
	tests := map[string]testCase{
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
	}
	bubble.Each(t, tests, func(t *testing.T, tt testCase) {
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
