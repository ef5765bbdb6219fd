package resources

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestTable(t *testing.T) {
	table := NewTable()
	for name, column := range map[v1.ResourceName]Column{
		v1.ResourceCPU: CPU, v1.ResourceMemory: Memory, v1.ResourceEphemeralStorage: EphemeralStorage, v1.ResourcePods: Pods,
	} {
		got, ok := table.Lookup(name)
		assert.True(t, ok)
		assert.Equal(t, column, got)
		assert.Equal(t, name, table.Name(column))
	}
	_, ok := table.Lookup("example.com/gpu")
	assert.False(t, ok)
	gpu, ok := table.Offer("example.com/gpu")
	assert.True(t, ok)
	again, ok := table.Offer("example.com/gpu")
	assert.True(t, ok)
	assert.Equal(t, gpu, again)
	assert.Equal(t, 5, table.Len())
}

func TestTableIsBounded(t *testing.T) {
	names := make([]v1.ResourceName, maxColumns)
	byName := map[v1.ResourceName]Column{}
	for i := range names {
		names[i] = v1.ResourceName(fmt.Sprintf("example.com/%d", i))
		byName[names[i]] = Column(i)
	}
	table := NewTable()
	table.current.Store(&columns{names: names, byName: byName})
	_, ok := table.Offer("example.com/one-too-many")
	assert.False(t, ok)
	_, ok = table.Offer("example.com/7")
	assert.True(t, ok)
	assert.Equal(t, maxColumns, table.Len())
}

// Pods that name ever new resources, which anybody may create, use up their own
// share of the columns and leave those of the nodes alone.
func TestInventedResourcesAreBounded(t *testing.T) {
	table := NewTable()
	pod := &v1.Pod{Spec: v1.PodSpec{
		NodeName:   "n",
		Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}},
	}}
	for i := range 20_000 {
		pod.Spec.Containers[0].Resources.Requests[v1.ResourceName(fmt.Sprintf("invented.example.com/%d",
			i))] = resource.MustParse("1")
	}
	request := ForBoundPod(table, pod)
	assert.Len(t, request.Amounts, 1+maxUseColumns)
	assert.Equal(t, 4+maxUseColumns, table.Len())

	node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{"example.com/gpu": resource.MustParse("2")}}}
	assert.Len(t, Allocatable(table, node), 1, "what a node offers still gets a column")
}

func TestIgnoredResources(t *testing.T) {
	table := NewTable("example.com/gpu")
	requests := v1.ResourceList{"example.com/gpu": resource.MustParse("1"), "example.com/nic": resource.MustParse("1")}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: requests}}}}}
	incoming, err := ForIncomingPod(table, pod)
	require.NoError(t, err)
	assert.Equal(t, []NamedAmount{{"example.com/nic", 1}}, incoming.Unlisted)
	capacity, err := ForCapacity(table, &Capacity{Requests: requests})
	require.NoError(t, err)
	assert.Equal(t, incoming.Unlisted, capacity.Unlisted)
	assert.Len(t, Allocatable(table, &v1.Node{Status: v1.NodeStatus{Allocatable: requests}}), 1)
	assert.Len(t, ForBoundPod(table, pod).Amounts, 2, "the pod and its nic")
}

// TestTableConcurrently lets many goroutines name the same resources: each name
// gets one column, and what has been read stays true.
func TestTableConcurrently(t *testing.T) {
	const workers, count = 8, 200
	table := NewTable()
	seen := make([]map[v1.ResourceName]Column, workers)
	var all sync.WaitGroup
	for w := range workers {
		seen[w] = map[v1.ResourceName]Column{}
		all.Go(func() {
			for i := range count {
				name := v1.ResourceName(fmt.Sprintf("example.com/%d", (i*7+w*13)%count))
				column, ok := table.Offer(name)
				assert.True(t, ok)
				assert.Equal(t, name, table.Name(column))
				assert.Greater(t, table.Len(), int(column))
				seen[w][name] = column
			}
		})
	}
	all.Wait()
	require.Equal(t, count+4, table.Len())
	for w := range workers {
		assert.Equal(t, seen[0], seen[w])
	}
}
