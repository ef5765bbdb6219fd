package account

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestADeviceIsGivenOnce(t *testing.T) {
	a := stocked()
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-0"), whole("gpu-1")), 1, start))
	refusal := a.Grant(state("b", 0, whole("gpu-1")), 2, start)
	require.NotNil(t, refusal)
	assert.Equal(t, DeviceInUse, refusal.Reason)
	assert.Equal(t, gpu("gpu-1"), refusal.Device)
	assert.Equal(t, []Owner{owned("a")}, refusal.Owners)
	assert.Equal(t, "device gpu.example.com/node-1/gpu-1 is allocated to ResourceClaim default/a", refusal.Message())
	require.Nil(t, a.Grant(state("b", 0, whole("gpu-2")), 2, start))
}

func TestOneOfManyAtOnceGetsADevice(t *testing.T) {
	a := stocked()
	var granted atomic.Int64
	var all sync.WaitGroup
	for asker := range 8 {
		all.Go(func() {
			for device := range 100 {
				name := strconv.Itoa(asker) + "-" + strconv.Itoa(device)
				if a.Grant(state(name, 0, whole("gpu-"+strconv.Itoa(device))), 1, start) == nil {
					granted.Add(1)
					a.ObserveClaim(state(name, 2, whole("gpu-"+strconv.Itoa(device))))
				}
				a.Doubles()
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 100, granted.Load())
	assert.Len(t, a.AppendDevices(nil), 100)
}

func TestAllOrNothing(t *testing.T) {
	a := stocked()
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-31")), 1, start))
	results := make([]resourcev1.DeviceRequestAllocationResult, 32)
	for i := range results {
		results[i] = whole("gpu-" + strconv.Itoa(i))
	}
	require.NotNil(t, a.Grant(state("b", 0, results...), 2, start))
	require.NotNil(t, a.Grant(state("b", 0, whole("gpu-31"), whole("gpu-0")), 2, start))
	require.NotNil(t, a.Grant(state("b", 0, whole("gpu-100")), 2, start))
	assert.Equal(t, map[string][]string{"gpu-31": {"a Granted"}}, owners(a), "nothing is left of what was refused")
	assert.Len(t, a.AppendDevices(nil), 100)
	results[31] = whole("gpu-32")
	require.Nil(t, a.Grant(state("b", 0, results...), 2, start))
	assert.Len(t, owners(a), 33)
}

func TestAGrantIsDecidedByANewerState(t *testing.T) {
	a := stocked()
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 5, start))
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-1")), 4, start))
	a.ObserveClaim(state("a", 4))
	a.ObserveClaim(state("a", 5))
	assert.Equal(t, map[string][]string{"gpu-0": {"a Granted"}}, owners(a), "states up to the base say nothing")
	a.ObserveClaim(state("a", 6))
	assert.Empty(t, owners(a), "a newer state without an allocation: the write was not made")

	require.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 6, start))
	a.ObserveClaim(state("a", 7, whole("gpu-1")))
	assert.Equal(t, map[string][]string{"gpu-1": {"a Allocated"}}, owners(a), "exactly what the state says")
}

func TestAskingTwiceIsOneGrant(t *testing.T) {
	a := stocked()
	a.ObserveClaim(state("a", 3))
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 5, start))
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 5, start))
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 7, start))
	a.ObserveClaim(state("a", 6))
	assert.Equal(t, map[string][]string{"gpu-0": {"a Granted"}}, owners(a), "the write on 7 can still be made")
	a.ObserveClaim(state("a", 8, whole("gpu-0")))
	assert.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 7, start), "it was made: the answer may be asked for again")
	a.ObserveClaim(state("a", 9))
	assert.Empty(t, owners(a))
}

func TestTwoGrantsOnOneBaseAreBothHeld(t *testing.T) {
	a := stocked()
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 5, start))
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-1")), 5, start))
	for _, name := range []string{"gpu-0", "gpu-1"} {
		require.NotNil(t, a.Grant(state("b", 0, whole(name)), 5, start), name)
	}
	a.ObserveClaim(state("a", 6, whole("gpu-1")))
	assert.Equal(t, map[string][]string{"gpu-1": {"a Allocated"}}, owners(a))
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 6, start))
	assert.Equal(t, map[string][]string{"gpu-0": {"a Granted"}, "gpu-1": {"a Allocated"}}, owners(a))
}

func TestAWriteOnAnOldStateIsRefused(t *testing.T) {
	a := stocked()
	a.ObserveClaim(state("a", 6))
	refusal := a.Grant(state("a", 0, whole("gpu-0")), 5, start)
	require.NotNil(t, refusal)
	assert.Equal(t, Outdated, refusal.Reason)
	assert.Equal(t, Outdated, a.Grant(state("b", 0, whole("gpu-0")), Version("none"), start).Reason)
	assert.Empty(t, owners(a))
}

func TestGiveUpDropsWhatWasNeverSeen(t *testing.T) {
	a := stocked()
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 5, start))
	require.Nil(t, a.Grant(state("b", 0, whole("gpu-1")), 5, start.Add(time.Second)))
	a.GiveUp("a", start)
	a.GiveUp("c", start.Add(time.Hour))
	assert.Len(t, owners(a), 2)
	a.GiveUp("a", start.Add(time.Second))
	assert.Equal(t, map[string][]string{"gpu-1": {"b Granted"}}, owners(a))
	require.Nil(t, a.Grant(state("b", 0, whole("gpu-1")), 5, start.Add(time.Minute)), "asked again")
	a.GiveUp("b", start.Add(30*time.Second))
	assert.Len(t, owners(a), 1, "what was asked for again is as young as that")
	a.GiveUp("b", start.Add(time.Hour))
	assert.Empty(t, a.claims)
	a.ForgetSlice("stock")
	assert.Empty(t, a.AppendDevices(nil))
	assert.Empty(t, a.pools)
}

func TestTryGrantsNothing(t *testing.T) {
	a := stocked()
	assert.Nil(t, a.Try(state("a", 0, whole("gpu-0")), 1))
	assert.Nil(t, a.Grant(state("a", 0), 1, start), "asks for nothing")
	assert.Empty(t, a.claims)
	require.NotNil(t, a.Try(state("a", 0, whole("gpu-100")), 1))
	assert.Len(t, a.AppendDevices(nil), 100, "what was only asked for leaves nothing")
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 1, start))
	require.NotNil(t, a.Try(state("b", 0, whole("gpu-0")), 1))
	assert.Equal(t, map[string][]string{"gpu-0": {"a Granted"}}, owners(a))
}

func TestADeviceIsFreeWhenThatIsSeen(t *testing.T) {
	allocated := state("a", 5, whole("gpu-0"))
	for name, over := range map[string]func(*Account){
		"deallocated": func(a *Account) { a.ObserveClaim(state("a", 6)) },
		"deleted":     func(a *Account) { a.ForgetClaim("a") },
	} {
		t.Run(name, func(t *testing.T) {
			a := stocked()
			a.ObserveClaim(allocated)
			unused := allocated.DeepCopy()
			unused.Status.ReservedFor = nil
			unused.DeletionTimestamp = &metav1.Time{Time: start}
			a.ObserveClaim(unused)
			require.NotNil(t, a.Grant(state("b", 0, whole("gpu-0")), 1, start))
			over(a)
			require.Nil(t, a.Grant(state("b", 0, whole("gpu-0")), 1, start))
		})
	}
}

func TestAnOlderStateChangesNothing(t *testing.T) {
	a := stocked()
	a.ObserveClaim(state("a", 6, whole("gpu-0")))
	a.ObserveClaim(state("a", 5))
	a.ObserveClaim(state("a", 6))
	assert.Equal(t, map[string][]string{"gpu-0": {"a Allocated"}}, owners(a))
}

func TestADoubleDoesNotSpread(t *testing.T) {
	a := stocked()
	require.Nil(t, a.Grant(state("b", 0, whole("gpu-0")), 5, start))
	a.ObserveClaim(state("a", 5, whole("gpu-0")))
	assert.Empty(t, a.Doubles(), "the grant may come to nothing")
	a.ObserveClaim(state("b", 6, whole("gpu-0")))
	assert.Equal(t, []Double{{Device: gpu("gpu-0"), Reason: Doubled, Owners: []Owner{owned("a"), owned("b")}}},
		a.Doubles())
	refusal := a.Grant(state("c", 0, whole("gpu-0")), 7, start)
	require.NotNil(t, refusal)
	assert.Equal(t, Doubled, refusal.Reason)

	a.ForgetClaim("a")
	assert.Empty(t, a.Doubles())
	assert.Equal(t, DeviceInUse, a.Grant(state("c", 0, whole("gpu-0")), 7, start).Reason, "b has it still")
	a.ForgetClaim("b")
	assert.Nil(t, a.Grant(state("c", 0, whole("gpu-0")), 7, start))
}

// stocked is an account with the devices gpu-0 to gpu-99.
func stocked() *Account {
	a := New()
	devices := make([]resourcev1.Device, 100)
	for i := range devices {
		devices[i].Name = "gpu-" + strconv.Itoa(i)
	}
	a.ObserveSlice(sliceOf("stock", 1, 1, devices...))
	return a
}

// state is a claim that has the results in its status, none where there are none.
func state(name string, version int, results ...resourcev1.DeviceRequestAllocationResult) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(version),
	}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name}}
	if len(results) > 0 {
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: results}}
	}
	return c
}

func whole(name string) resourcev1.DeviceRequestAllocationResult {
	return resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: "gpu.example.com", Pool: "node-1", Device: name}
}

// share is a share of a device that consumes an amount of memory.
func share(name, memory string) resourcev1.DeviceRequestAllocationResult {
	r := whole(name)
	r.ShareID = ptr.To(types.UID("share"))
	r.ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}
	return r
}

func gpu(name string) Device { return Device{Driver: "gpu.example.com", Pool: "node-1", Name: name} }

func owned(name string) Owner { return Owner{Namespace: "default", Name: name, UID: types.UID(name)} }

// owners are the devices that somebody has, with who has them and how.
func owners(a *Account) map[string][]string {
	list := map[string][]string{}
	for _, d := range a.AppendDevices(nil) {
		for _, o := range d.Owners {
			list[d.Name] = append(list[d.Name], o.Name+" "+string(o.State))
		}
	}
	return list
}
