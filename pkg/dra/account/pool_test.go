package account

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestOnlyTheHighestGenerationCounts(t *testing.T) {
	a := New()
	a.ObserveSlice(sliceOf("s1", 1, 2, shareable("gpu-0", "10Gi")))
	a.ObserveSlice(sliceOf("s2", 1, 2, shareable("gpu-1", "10Gi")))
	a.ObserveClaim(state("a", 1, share("gpu-1", "6Gi")))
	a.ObserveSlice(sliceOf("s1", 2, 1, shareable("gpu-0", "20Gi")))
	assert.Equal(t, []string{"gpu-0 node-1", "gpu-1 gone"}, published(a),
		"gpu-1 is in no slice that counts, but somebody has it")
	assert.Equal(t, NotKnown, a.Grant(state("b", 0, share("gpu-1", "1Gi")), 1, start).Reason)

	a.ObserveSlice(sliceOf("s2", 2, 2, shareable("gpu-1", "20Gi")))
	assert.Equal(t, []string{"gpu-0 node-1", "gpu-1 node-1"}, published(a))
	assert.Nil(t, a.Grant(state("b", 0, share("gpu-1", "14Gi")), 1, start))

	a.ObserveSlice(sliceOf("s3", 1, 9, shareable("gpu-2", "20Gi")))
	assert.Equal(t, []string{"gpu-0 node-1", "gpu-1 node-1"}, published(a), "a late one of an old generation")

	a.ForgetSlice("s1")
	a.ForgetSlice("s2")
	assert.Equal(t, []string{"gpu-1 gone", "gpu-2 node-1"}, published(a), "a driver that starts again with 1")
	a.ForgetSlice("s3")
	a.ForgetClaim("a")
	a.GiveUp("b", start.Add(1))
	assert.Empty(t, published(a))
	assert.Empty(t, a.pools)
}

func TestADriverStartsAgainWithALowerGeneration(t *testing.T) {
	a := New()
	a.ObserveSlice(sliceOf("s1", 7, 2, resourcev1.Device{Name: "gpu-0"}))
	a.ObserveSlice(sliceOf("s2", 7, 2, resourcev1.Device{Name: "gpu-1"}))
	a.ObserveSlice(sliceOf("s1", 1, 2, resourcev1.Device{Name: "gpu-2"}))
	assert.Equal(t, []string{"gpu-1 node-1"}, published(a))
	a.ObserveSlice(sliceOf("s2", 1, 2, resourcev1.Device{Name: "gpu-3"}))
	assert.Equal(t, []string{"gpu-2 node-1", "gpu-3 node-1"}, published(a))
}

func TestADeviceThatMovesBetweenSlices(t *testing.T) {
	a := New()
	a.ObserveSlice(sliceOf("s1", 1, 2, shareable("gpu-0", "10Gi")))
	a.ObserveSlice(sliceOf("s2", 1, 2, shareable("gpu-0", "20Gi")))
	limit := func() string {
		limit := deviceOf(a, "gpu-0").published.Capacity["memory"].Value
		return limit.String()
	}
	assert.Equal(t, "10Gi", limit(), "the first by name counts")
	a.ObserveSlice(sliceOf("s1", 1, 2))
	assert.Equal(t, "20Gi", limit())
	a.ObserveSlice(sliceOf("s1", 1, 2, shareable("gpu-0", "5Gi")))
	assert.Equal(t, "5Gi", limit())
	a.ForgetSlice("s1")
	assert.Equal(t, "20Gi", limit())
	a.ForgetSlice("s2")
	assert.Empty(t, a.AppendDevices(nil))
	assert.Empty(t, a.pools)
}

func TestASliceOfTheSameNameInAnotherPool(t *testing.T) {
	a := New()
	a.ObserveSlice(sliceOf("s", 1, 1, resourcev1.Device{Name: "gpu-0"}))
	moved := sliceOf("s", 1, 1, resourcev1.Device{Name: "gpu-0"})
	moved.Spec.Pool.Name = "node-2"
	a.ObserveSlice(moved)
	require.Len(t, a.AppendDevices(nil), 1)
	assert.Equal(t, "node-2", a.AppendDevices(nil)[0].Pool)
	assert.Len(t, a.pools, 1)
}

func TestEachDeviceMayNameItsNode(t *testing.T) {
	a := New()
	s := sliceOf("s", 1, 1, resourcev1.Device{Name: "gpu-0", NodeName: ptr.To("node-7")},
		resourcev1.Device{Name: "gpu-1", AllNodes: ptr.To(true)})
	s.Spec.NodeName, s.Spec.PerDeviceNodeSelection = nil, ptr.To(true)
	a.ObserveSlice(s)
	assert.Equal(t, []string{"gpu-0 node-7", "gpu-1 "}, published(a))
	a.ObserveSlice(sliceOf("own", 1, 2, resourcev1.Device{Name: "gpu-2"}))
	assert.Equal(t, []string{"gpu-0 node-7", "gpu-1 ", "gpu-2 node-1"}, published(a), "what is of no node counts, too")
}

// The API server lets a node write slices of any pool, if they are of that node. kube-scheduler looks at those of the
// pod's node only.
func TestANodeCannotSpoilThePoolOfAnother(t *testing.T) {
	partition := resourcev1.Device{Name: "gpu-0", ConsumesCounters: []resourcev1.DeviceCounterConsumption{{
		CounterSet: "gpu", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse("1Gi")}},
	}}}
	devices, counters := sliceOf("s-1", 1, 2, partition), countersOf("s-2", 1, 2, "1Gi")
	sameDevice, newer := sliceOf("a", 1, 2, partition), countersOf("b", 9, 1, "1Ki")
	sameDevice.Spec.NodeName, newer.Spec.NodeName = ptr.To("evil"), ptr.To("evil")
	all := []*resourcev1.ResourceSlice{devices, counters, sameDevice, newer}
	for i := range all {
		a := New()
		for _, s := range slices.Concat(all[i:], all[:i], all[1:2]) {
			a.ObserveSlice(s)
		}
		require.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 1, start), i)
		assert.Equal(t, []string{"gpu-0 node-1"}, published(a))
		a.ForgetSlice("a")
		a.ForgetSlice("s-1")
		assert.Equal(t, []string{"gpu-0 gone"}, published(a))
		a.ForgetSlice("s-2")
		a.ObserveSlice(sameDevice)
		assert.Equal(t, []string{"gpu-0 gone"}, published(a),
			"the other has a higher generation, and nobody knows better now")
		a.ForgetSlice("b")
		assert.Equal(t, []string{"gpu-0 evil"}, published(a))
	}
}

// A pool is made anew when it is next asked: that must not lose what the claim has that asks.
func TestADeviceOfNoSliceIsKeptWhileItsOwnerAsksForAnother(t *testing.T) {
	both, one := resourcev1.Device{Name: "gpu-0"}, resourcev1.Device{Name: "gpu-1"}
	for name, ask := range map[string]func(a *Account) *Refusal{
		"granted": func(a *Account) *Refusal { return a.Grant(state("a", 0, whole("gpu-1")), 1, start) },
		"tried":   func(a *Account) *Refusal { return a.Try(state("a", 0, whole("gpu-1"), whole("gpu-0")), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			a := New()
			a.ObserveSlice(sliceOf("s", 1, 1, both, one))
			a.ObserveClaim(state("a", 1, whole("gpu-0")))
			assert.Equal(t, []string{"gpu-0 node-1", "gpu-1 node-1"}, published(a))
			a.ObserveSlice(sliceOf("s", 1, 1, one))
			assert.Equal(t, name == "tried", ask(a) != nil)
			assert.Equal(t, []string{"a Allocated"}, owners(a)["gpu-0"])
			a.ObserveSlice(sliceOf("s", 1, 1, both, one))
			refusal := a.Grant(state("b", 0, whole("gpu-0")), 1, start)
			require.NotNil(t, refusal)
			assert.Equal(t, DeviceInUse, refusal.Reason)
		})
	}
}

// Amounts of more than 64 bits have digits of their own, which copies share.
func TestReadsWhileSlicesChange(t *testing.T) {
	const large = "40000000000000000000000000000000"
	device := shareable("gpu-0", large)
	device.ConsumesCounters = partition("", large).ConsumesCounters
	a := New()
	a.ObserveSlice(countersOf("c", 1, 2, large))
	var all sync.WaitGroup
	for _, do := range []func(i int){
		func(i int) { a.ObserveSlice(sliceOf("s", int64(1+i%2), 2, device)) },
		func(int) { a.Doubles() },
		func(int) { a.AppendDevices(nil) },
		func(int) { a.OnNode("node-1") },
		func(i int) { a.ObserveClaim(state("a", i, share("gpu-0", large))) },
		func(i int) { a.Grant(state("b", 0, share("gpu-0", large)), int64(i), start) },
	} {
		all.Go(func() {
			for i := range 300 {
				do(i)
			}
		})
	}
	all.Wait()
	a.ObserveSlice(sliceOf("s", 1, 2, device))
	a.ForgetClaim("b")
	assert.Equal(t, SharedCapacityExceeded, a.Grant(state("c", 0, share("gpu-0", "1")), 1, start).Reason)
	a.ForgetClaim("a")
	assert.Nil(t, a.Grant(state("c", 0, share("gpu-0", large)), 1, start))
}

func TestDriversAndPoolsAreApart(t *testing.T) {
	a := stocked()
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 1, start))
	other, elsewhere := whole("gpu-0"), whole("gpu-0")
	other.Driver, elsewhere.Pool = "nic.example.com", "node-2"
	for _, r := range []resourcev1.DeviceRequestAllocationResult{other, elsewhere} {
		s := sliceOf(r.Driver+r.Pool, 1, 1, resourcev1.Device{Name: r.Device})
		s.Spec.Driver, s.Spec.Pool.Name, s.Spec.NodeName = r.Driver, r.Pool, nil
		a.ObserveSlice(s)
	}
	require.Nil(t, a.Grant(state("b", 0, other, elsewhere), 1, start))
	require.NotNil(t, a.Grant(state("c", 0, elsewhere), 1, start))
}

func sliceOf(name string, generation, count int64, devices ...resourcev1.Device) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: ptr.To("node-1"), Devices: devices,
		Pool: resourcev1.ResourcePool{Name: "node-1", Generation: generation, ResourceSliceCount: count},
	}}
}

// countersOf is a slice with the counter set gpu, which has memory.
func countersOf(name string, generation, count int64, memory string) *resourcev1.ResourceSlice {
	s := sliceOf(name, generation, count)
	s.Spec.SharedCounters = []resourcev1.CounterSet{{
		Name: "gpu", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse(memory)}},
	}}
	return s
}

// published lists the devices, with the node that their slices name.
func published(a *Account) []string {
	var list []string
	for _, d := range a.AppendDevices(nil) {
		node := d.Node
		if !d.Published {
			node = "gone"
		}
		list = append(list, d.Name+" "+node)
	}
	return list
}
