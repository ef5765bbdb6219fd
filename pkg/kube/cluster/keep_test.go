package cluster

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// keeper keeps the slots of pods that say so.
type keeper struct {
	mu   sync.Mutex
	kept []string
}

func (k *keeper) Keep(last *Pod) (slot ledger.Slot, told func(*ledger.Rejection), keep bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if last.Node == "" {
		k.kept = append(k.kept, "asked for "+last.Ref.Name+", which had no capacity")
	}
	if last.Annotations == nil || last.Annotations.Keep != KeepYes {
		return ledger.Slot{}, nil, false
	}
	slot = ledger.Slot{
		Ref:  ledger.SlotRef{Namespace: last.Ref.Namespace, Name: last.Ref.Name, Slot: "capacity"},
		Node: last.Node, Request: last.Request, Policy: ledger.Once,
	}
	return slot, func(refused *ledger.Rejection) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if refused != nil {
			k.kept = append(k.kept, last.Ref.Name+" not: "+refused.Reason.String())
			return
		}
		k.kept = append(k.kept, last.Ref.Name+" as "+slot.Ref.String())
	}, true
}

func keepCapacity(p *v1.Pod) {
	p.Annotations = map[string]string{"globalreserve.io/reservation": "true"}
}

// used is how much CPU of n1 is taken, and slots how many slots there are.
func (c *Cache) used() (cpu int64, slots int) {
	view, _, _ := c.ledger.Node("n1")
	for _, a := range view.Amounts {
		if a.Resource == v1.ResourceCPU {
			cpu = a.Allocatable - a.Free
		}
	}
	return cpu, c.ledger.Stats().Slots
}

func TestCapacitiesOfPodsThatAreGone(t *testing.T) {
	bound := objects(aPod("a", 2, on("n1"), keepCapacity))
	tests := map[string]struct {
		pods []runtime.Object
		then func(f *fixture)
		kept bool
	}{
		"deleted": {bound, func(f *fixture) {
			f.podServer.send(watch.Deleted, aPod("a", 5, on("n1"), keepCapacity, terminating))
		}, true},
		"deleted, but the annotation was taken away before": {bound, func(f *fixture) {
			f.podServer.send(watch.Modified, aPod("a", 3, on("n1")))
			f.podServer.send(watch.Deleted, aPod("a", 5, on("n1"), terminating))
		}, false},
		"finished": {bound, func(f *fixture) {
			f.podServer.send(watch.Modified, aPod("a", 3, on("n1"), keepCapacity, inPhase(v1.PodSucceeded)))
			f.podServer.send(watch.Deleted, aPod("a", 5, on("n1"), keepCapacity, inPhase(v1.PodSucceeded)))
		}, false},
		"finished while being deleted": {bound, func(f *fixture) {
			f.podServer.send(watch.Modified, aPod("a", 3, on("n1"), keepCapacity, terminating))
			f.podServer.send(watch.Modified, aPod("a", 4, on("n1"), keepCapacity, terminating, inPhase(v1.PodFailed)))
			f.podServer.send(watch.Deleted, aPod("a", 5, on("n1"), keepCapacity, terminating, inPhase(v1.PodFailed)))
		}, true},
		"gone in a gap of the watch": {bound, func(f *fixture) { f.podServer.gap(9) }, true},
		"its name was given anew and the deletion missed": {bound, func(f *fixture) {
			f.podServer.send(watch.Modified, aPod("a", 9, withUID("other")))
		}, true},
		"never bound": {objects(aPod("a", 2, keepCapacity)), func(f *fixture) {
			f.podServer.send(watch.Deleted, aPod("a", 5, keepCapacity))
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			capacities := &keeper{}
			f := newFixture(tt.pods, objects(aNode("n1", 1, "4")))
			f.options.Keep = capacities.Keep
			run(t, f, func(t *testing.T) {
				tt.then(f)
				pass(backoffMost)
				cpu, slots := f.used()
				if !tt.kept {
					assert.Empty(t, capacities.kept)
					assert.Zero(t, cpu+int64(slots))
					return
				}
				assert.Equal(t, []string{"a as default/a/capacity"}, capacities.kept)
				assert.Equal(t, []int64{100, 1}, []int64{cpu, int64(slots)})
			})
		})
	}
}
