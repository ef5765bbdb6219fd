package extender

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// desk is what an Extender needs to know of reservations, with fixed answers.
type desk struct {
	holds     []ledger.HoldRef // every pod may use them
	node      string           // what Direct and Plan say
	elsewhere bool
	asked     int // how often Direct was
	allowed   map[types.UID]bool
	looks     int
}

func (d *desk) Candidates(*podinfo.Info) []ledger.HoldRef { return d.holds }

func (d *desk) Direct(*podinfo.Info, []ledger.UsableHold, []string) (string, bool) {
	d.asked++
	return d.node, d.elsewhere
}

func (d *desk) Plan(*podinfo.Info, []ledger.UsableHold, []string) (string, bool) {
	return d.node, d.node != ""
}

func (d *desk) Looked(types.UID) int {
	d.looks++
	return d.looks
}
func (d *desk) Allow(pod types.UID)    { d.allowed[pod] = true }
func (d *desk) Withdraw(pod types.UID) { d.allowed[pod] = false }

// reserved is a world of the nodes a, b and c with two CPUs each, all but those
// of a taken by holds: of b by one that pods may use, of c by one of the lowest
// priority that may be ended.
func reserved(t *testing.T) (*world, *desk) {
	w := newWorld(t)
	w.scoring = Scoring{ReservationMatch: 10, Resources: []ResourceWeight{{Name: v1.ResourceCPU, Weight: 1}}}
	d := &desk{allowed: map[types.UID]bool{}}
	w.o.Reservations, w.o.Steering, w.o.Preemptors = d, d, d
	for _, node := range []string{"a", "b", "c"} {
		w.node(node, 2000, 8e9)
	}
	hold := func(name, node string, preemptible bool) {
		require.True(t, w.ledger.ObserveHold(ledger.Hold{
			Ref: ledger.HoldRef{Namespace: "ns", Name: name, Slot: "s"}, Node: node, Policy: ledger.Once,
			Request:     &resources.Request{Amounts: []resources.Amount{{Column: resources.CPU, Value: 2000}, {Column: resources.Pods, Value: 1}}},
			Preemptible: preemptible, Priority: -1,
		}))
	}
	hold("match", "b", false)
	hold("idle", "c", true)
	return w, d
}

var match = []ledger.HoldRef{{Namespace: "ns", Name: "match", Slot: "s"}}

func TestFilterWithReservations(t *testing.T) {
	const full, away = "GlobalReserve: not enough room left on the node", "GlobalReserve: the pod holds a reservation on another node"
	tests := map[string]struct {
		setup   func(w *world, d *desk)
		pod     func(p *v1.Pod)
		kept    []string
		failed  map[string]string
		asked   int
		allowed bool
	}{
		"reserved room is not for everybody": {
			kept: []string{"a"}, failed: map[string]string{"b": full, "c": full},
		},
		"a matching pod has its choice": {
			setup: func(_ *world, d *desk) { d.holds = match },
			kept:  []string{"a", "b"}, failed: map[string]string{"c": full}, asked: 1,
		},
		"a matching pod is kept on its node": {
			setup: func(_ *world, d *desk) { d.holds, d.node = match, "b" },
			kept:  []string{"b"}, failed: map[string]string{"a": away, "c": full}, asked: 1,
		},
		"a weaker preference leaves the choice": {
			setup: func(w *world, d *desk) { d.holds, d.node, w.scoring.ReservationMatch = match, "b", 9 },
			kept:  []string{"a", "b"}, failed: map[string]string{"c": full},
		},
		"a matching pod is sent elsewhere": {
			setup: func(_ *world, d *desk) { d.holds, d.elsewhere = match, true },
			kept:  []string{}, failed: map[string]string{"a": away, "b": away, "c": full}, asked: 1,
		},
		"preemptible room is not offered while there is other room": {
			pod:  func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](5) },
			kept: []string{"a"}, failed: map[string]string{"b": full, "c": full},
		},
		"preemptible room is offered when there is no other": {
			setup: func(w *world, _ *desk) { w.run("filler", "a", 2000, 0) },
			pod:   func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](5) },
			kept:  []string{"c"}, failed: map[string]string{"a": full, "b": full}, allowed: true,
		},
		"preemptible room is not for pods of the same priority": {
			setup: func(w *world, _ *desk) { w.run("filler", "a", 2000, 0) },
			pod:   func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](-1) },
			kept:  []string{}, failed: map[string]string{"a": full, "b": full, "c": full},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, d := reserved(t)
			if tt.setup != nil {
				tt.setup(w, d)
			}
			pod := newPod("p")
			if tt.pod != nil {
				tt.pod(pod)
			}
			d.allowed[pod.UID] = !tt.allowed // of an earlier call
			var got extenderv1.ExtenderFilterResult
			w.ask("filter", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{"a", "b", "c"}}, &got)
			assert.Equal(t, tt.kept, *got.NodeNames)
			failed := map[string]string{}
			for _, refused := range []extenderv1.FailedNodesMap{got.FailedNodes, got.FailedAndUnresolvableNodes} {
				for node, why := range refused {
					failed[node] = why
				}
			}
			assert.Equal(t, tt.failed, failed)
			assert.Equal(t, tt.asked, d.asked)
			assert.Equal(t, tt.allowed, d.allowed[pod.UID])
		})
	}
}

// What a scheduler hears of a node the pod should not be on must not make it look
// for victims there.
func TestSentElsewhereIsUnresolvable(t *testing.T) {
	w, d := reserved(t)
	d.holds, d.elsewhere = match, true
	var got extenderv1.ExtenderFilterResult
	w.ask("filter", extenderv1.ExtenderArgs{Pod: newPod("p"), NodeNames: &[]string{"a", "b"}}, &got)
	assert.Empty(t, got.FailedNodes)
	assert.Len(t, got.FailedAndUnresolvableNodes, 2)
	assert.Empty(t, w.refused, "its nomination wakes it")
}

func TestPrioritizePrefersReservedRoom(t *testing.T) {
	w, d := reserved(t)
	scores := func() map[string]int64 {
		var list extenderv1.HostPriorityList
		w.ask("prioritize", extenderv1.ExtenderArgs{Pod: newPod("p"), NodeNames: &[]string{"a", "b"}}, &list)
		byHost := map[string]int64{}
		for _, s := range list {
			byHost[s.Host] = s.Score
		}
		return byHost
	}
	assert.Equal(t, map[string]int64{"a": 5, "b": 10}, scores(), "the fuller one")
	d.holds, d.node = match, "b"
	assert.Equal(t, map[string]int64{"a": 0, "b": 10}, scores())
	w.scoring.ReservationMatch = 4
	assert.Equal(t, map[string]int64{"a": 3, "b": 10}, scores())
	d.node = ""
	assert.Equal(t, map[string]int64{"a": 5, "b": 10}, scores(), "the room is meant for other pods")
}

// There is room on a node that the scheduler has not offered. It may be one the pod
// cannot be on, so that the wait for it ends.
func TestPreemptibleRoomAfterSomeLooks(t *testing.T) {
	w, d := reserved(t)
	pod := newPod("p")
	pod.Spec.Priority = ptr.To[int32](5)
	for look := 1; look <= looksBeforePreempting; look++ {
		var got extenderv1.ExtenderFilterResult
		w.ask("filter", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{"c"}}, &got)
		offered := look == looksBeforePreempting
		assert.Equal(t, offered, len(*got.NodeNames) == 1, "look %d", look)
		assert.Equal(t, offered, d.allowed[pod.UID])
		assert.Len(t, w.woken, min(look, looksBeforePreempting-1), "it has to be tried again")
		assert.Empty(t, w.refused, "or the wake-up would wait for room to be freed")
	}
}

// Victims are weighed with what the pod may use of reserved room.
func TestPreemptCountsHolds(t *testing.T) {
	w, d := reserved(t)
	w.run("victim", "b", 1000, 0)
	d.holds = match
	pod := newPod("p")
	pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1500m")
	args := extenderv1.ExtenderPreemptionArgs{Pod: pod, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{
		"b": {Pods: []*extenderv1.MetaPod{{UID: "victim"}}},
	}}
	var got extenderv1.ExtenderPreemptionResult
	w.ask("preempt", args, &got)
	assert.Contains(t, got.NodeNameToMetaVictims, "b")
	d.holds = nil
	got = extenderv1.ExtenderPreemptionResult{}
	w.ask("preempt", args, &got)
	assert.NotContains(t, got.NodeNameToMetaVictims, "b", "the hold is no victim")
}

// With many holds that are nobody's business of the pod, filter stays cheap.
func BenchmarkFilterBesideHolds(b *testing.B) {
	w := newWorld(b)
	d := &desk{allowed: map[types.UID]bool{}}
	w.o.Reservations, w.o.Steering, w.o.Preemptors = d, d, d
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
	args := extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}
	b.ReportAllocs()
	for b.Loop() {
		w.post("filter", args)
	}
}
