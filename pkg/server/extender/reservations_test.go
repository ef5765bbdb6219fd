package extender

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/background"
)

// reserved is a world of the nodes a, b and c with two CPUs each, all but those
// of a taken by holds: of b by one that pods of the team t may use, of c by one of
// the lowest priority that may be ended.
func reserved(t *testing.T) *world {
	w := newWorld(t)
	w.prefer(10)
	for _, node := range []string{"a", "b", "c"} {
		w.node(node, 2000, 8e9)
	}
	w.hold("match", "b", false)
	w.hold("idle", "c", true)
	w.match()
	return w
}

// prefer has nodes scored by their CPU, and by what they hold for the pod.
func (w *world) prefer(match int64) {
	w.score(policy.Prioritize{ReservationMatch: match, Resources: []policy.ResourceWeight{{Name: v1.ResourceCPU, Weight: 1}}})
}

// member returns a pod that may use the reservation "match".
func member(name string) *v1.Pod {
	p := newPod(name)
	join(p)
	return p
}

func join(p *v1.Pod) { p.Labels = map[string]string{"team": "t"} }

func urgent(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](5) }

func TestFilterWithReservations(t *testing.T) {
	const full, away = "GlobalReserve: not enough room left on the node", "GlobalReserve: the pod holds a reservation on another node"
	abc := []string{"a", "b", "c"}
	tests := map[string]struct {
		setup   func(w *world)
		pod     func(p *v1.Pod)
		kept    []string
		failed  map[string]string
		allowed bool
	}{
		"reserved room is not for everybody": {
			kept: []string{"a"}, failed: map[string]string{"b": full, "c": full},
		},
		"a matching pod is kept on its node": {
			pod: join, kept: []string{"b"}, failed: map[string]string{"a": away, "c": full},
		},
		"a matching pod that cannot be on its node has its choice": {
			setup: func(w *world) {
				for range 4 {
					assert.True(w.t, w.fits(member("p"), "b"))
				}
			},
			pod: join, kept: []string{"a", "b"}, failed: map[string]string{"c": full},
		},
		"reserved room is meant for one pod at a time": {
			setup: func(w *world) {
				w.create(member("first"))
				assert.True(w.t, w.fits(member("first"), "b"))
			},
			pod: join, kept: []string{"a", "b"}, failed: map[string]string{"c": full},
		},
		"a weaker preference leaves the choice": {
			setup: func(w *world) { w.prefer(9) },
			pod:   join, kept: []string{"a", "b"}, failed: map[string]string{"c": full},
		},
		"preemptible room is not offered while there is other room": {
			pod: urgent, kept: []string{"a"}, failed: map[string]string{"b": full, "c": full},
		},
		"preemptible room is offered when there is no other": {
			setup: func(w *world) { w.run("filler", "a", 2000, 0) },
			pod:   urgent,
			kept:  []string{"c"}, failed: map[string]string{"a": full, "b": full}, allowed: true,
		},
		"preemptible room is offered no more when there is other": {
			setup: func(w *world) {
				w.run("filler", "a", 2000, 0)
				p := newPod("p")
				urgent(p)
				assert.True(w.t, w.fits(p, "c"))
				assert.True(w.t, w.mayEndSlots(p))
				w.ledger.RemovePod(ledger.PodRef{Namespace: "ns", Name: "filler", UID: "filler"}, 1)
			},
			pod: urgent, kept: []string{"a"}, failed: map[string]string{"b": full, "c": full},
		},
		"preemptible room is not for pods of the same priority": {
			setup: func(w *world) { w.run("filler", "a", 2000, 0) },
			pod:   func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](-1) },
			kept:  []string{}, failed: map[string]string{"a": full, "b": full, "c": full},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, pod := reserved(t), newPod("p")
			if tt.pod != nil {
				tt.pod(pod)
			}
			w.create(pod)
			if tt.setup != nil {
				tt.setup(w)
			}
			var got extenderv1.ExtenderFilterResult
			w.ask("filter", extenderv1.ExtenderArgs{Pod: newPod("p"), NodeNames: &abc}, &got)
			assert.Equal(t, tt.kept, *got.NodeNames)
			failed := map[string]string{}
			for _, refused := range []extenderv1.FailedNodesMap{got.FailedNodes, got.FailedAndUnresolvableNodes} {
				for node, why := range refused {
					failed[node] = why
				}
			}
			assert.Equal(t, tt.failed, failed)
			assert.Equal(t, tt.allowed, w.mayEndSlots(pod))
		})
	}
}

// A copy that says it may use reserved room, or is of a high priority, is told what
// it would get. No room is meant for it, and none is ended for it.
func TestCopiesPlanNothing(t *testing.T) {
	for name, down := range map[string]error{"no such pod": nil, "the API server cannot be read": errDown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := reserved(t)
				w.api.down = down
				copied := member("copy")
				urgent(copied)
				assert.True(t, w.fits(copied, "b"), "it may use the hold")
				var got extenderv1.ExtenderFilterResult
				w.ask("filter", extenderv1.ExtenderArgs{Pod: copied, NodeNames: &[]string{"a", "b", "c"}}, &got)
				assert.Equal(t, []string{"a", "b"}, *got.NodeNames, "it is not kept on a node")
				w.run("filler", "a", 2000, 0)
				for range 3 {
					assert.False(t, w.fits(copied, "c"), "preemptible room is not offered")
				}
				scores := w.scores(copied, "a", "b")
				assert.Equal(t, scores["a"], scores["b"], "both are full")
				w.api.down = nil
				w.create(member("p"))
				assert.Equal(t, map[string]int64{"a": 0, "b": 10}, w.scores(newPod("p"), "a", "b"), "the hold is meant for nobody yet")
				w.assertUntold(t, copied, "a", "b", "c")
			})
		})
	}
}

// What a scheduler hears of a node the pod should not be on must not make it look
// for victims there.
func TestSentElsewhereIsUnresolvable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := reserved(t)
		defer background.Run(t, w.steering.Run)()
		var offered []string
		for k := range 100 { // or the scheduler has no other nodes
			offered = append(offered, fmt.Sprintf("n%d", k))
			w.node(offered[k], 2000, 8e9)
		}
		w.create(member("p"))
		var got extenderv1.ExtenderFilterResult
		w.ask("filter", extenderv1.ExtenderArgs{Pod: newPod("p"), NodeNames: &offered}, &got)
		assert.Empty(t, got.FailedNodes)
		assert.Len(t, got.FailedAndUnresolvableNodes, len(offered))
		assert.Empty(t, w.wokenAfter(w.grow(offered...)), "its nomination wakes it")
		assert.Equal(t, map[string]string{"p": "b"}, w.writes.nominated)
	})
}

// scores asks prioritize.
func (w *world) scores(pod *v1.Pod, nodes ...string) map[string]int64 {
	w.t.Helper()
	var list extenderv1.HostPriorityList
	w.ask("prioritize", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes}, &list)
	byHost := map[string]int64{}
	for _, s := range list {
		byHost[s.Host] = s.Score
	}
	return byHost
}

func TestPrioritizePrefersReservedRoom(t *testing.T) {
	w := reserved(t)
	for _, p := range []*v1.Pod{newPod("stranger"), member("p"), member("late")} {
		w.create(p)
	}
	scores := func(name string) map[string]int64 { return w.scores(newPod(name), "a", "b") }
	assert.Equal(t, map[string]int64{"a": 5, "b": 10}, scores("stranger"), "the fuller one")
	assert.Equal(t, map[string]int64{"a": 0, "b": 10}, scores("p"))
	w.prefer(4)
	assert.Equal(t, map[string]int64{"a": 3, "b": 10}, scores("p"))
	assert.Equal(t, map[string]int64{"a": 5, "b": 10}, scores("late"), "the room is meant for another pod")
}

// There is room on a node that the scheduler has not offered. It may be one the pod
// cannot be on, so that the wait for it ends.
func TestPreemptibleRoomAfterSomeLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := reserved(t)
		pod := newPod("p")
		urgent(pod)
		w.create(pod)
		const looks = 3
		for look := 1; look <= looks; look++ {
			offered := look == looks
			assert.Equal(t, offered, w.fits(pod, "c"), "look %d", look)
			assert.Equal(t, offered, w.mayEndSlots(pod))
			assert.Len(t, w.wokenAfter(func() {}), min(look, looks-1), "it has to be tried again, whatever is free")
		}
	})
}

// Victims are weighed with what the pod may use of reserved room.
func TestPreemptCountsHolds(t *testing.T) {
	w := reserved(t)
	w.run("victim", "b", 1000, 0)
	pod := member("p")
	pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1500m")
	w.create(pod)
	args := extenderv1.ExtenderPreemptionArgs{Pod: pod, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{
		"b": {Pods: []*extenderv1.MetaPod{{UID: "victim"}}},
	}}
	var got extenderv1.ExtenderPreemptionResult
	w.ask("preempt", args, &got)
	assert.Contains(t, got.NodeNameToMetaVictims, "b")
	w.question.Matcher.Remove("ns", "match")
	got = extenderv1.ExtenderPreemptionResult{}
	w.ask("preempt", args, &got)
	assert.NotContains(t, got.NodeNameToMetaVictims, "b", "the hold is no victim")
}

// With many holds that are nobody's business of the pod, filter stays cheap.
func BenchmarkFilterBesideHolds(b *testing.B) {
	w := newWorld(b)
	names := make([]string, 500)
	for i := range names {
		names[i] = fmt.Sprintf("node-%04d", i)
		w.node(names[i], 64000, 1<<38)
		for k := range 20 {
			w.ledger.ObserveHold(ledger.Hold{
				Ref: ledger.HoldRef{Namespace: "other", Name: fmt.Sprintf("r-%d-%d", i, k), Slot: "s"}, Node: names[i], Policy: ledger.Once,
				Request:  &resources.Request{Amounts: []resources.Amount{{Column: resources.CPU, Value: 100}, {Column: resources.Pods, Value: 1}}},
				Deadline: time.Now().Add(time.Hour),
			})
		}
	}
	pod := newPod("p")
	w.create(pod)
	args := extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}
	b.ReportAllocs()
	for b.Loop() {
		w.post("filter", args)
	}
}
