package account

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestAdminAccessTakesNothing(t *testing.T) {
	a := stocked()
	admin := whole("gpu-0")
	admin.AdminAccess = ptr.To(true)
	require.Nil(t, a.Grant(state("a", 0, whole("gpu-0")), 1, start))
	require.Nil(t, a.Grant(state("admin", 0, admin), 1, start))
	a.ObserveClaim(state("admin", 2, admin))
	assert.Equal(t, map[string][]string{"gpu-0": {"a Granted"}}, owners(a))
	assert.Empty(t, a.Doubles())
}

func TestSharesStayWithinTheCapacity(t *testing.T) {
	a := New()
	a.ObserveSlice(sliceOf("s", 1, 1, shareable("gpu-0", "10Gi")))
	require.Nil(t, a.Grant(state("a", 0, share("gpu-0", "4Gi"), share("gpu-0", "2Gi")), 1, start))
	a.ObserveClaim(state("a", 2, share("gpu-0", "4Gi"), share("gpu-0", "2Gi")))
	refusal := a.Grant(state("b", 0, share("gpu-0", "5Gi")), 1, start)
	require.NotNil(t, refusal)
	assert.Equal(t, SharedCapacityExceeded, refusal.Reason)
	assert.Equal(t,
		"device gpu.example.com/node-1/gpu-0 has 10Gi of memory, of which 6Gi are used; 5Gi more were asked for. "+
			"It is shared by ResourceClaim default/a", refusal.Message())
	require.Nil(t, a.Grant(state("b", 0, share("gpu-0", "4Gi")), 1, start))
	a.ObserveClaim(state("b", 2, share("gpu-0", "4Gi")))
	assert.Equal(t, "10Gi", used(a, "gpu-0"))
	assert.Empty(t, a.Doubles())
	a.ForgetClaim("a")
	assert.Equal(t, "4Gi", used(a, "gpu-0"))
}

func TestTheCapacityIsThatOfTheSliceNow(t *testing.T) {
	a := New()
	a.ObserveSlice(sliceOf("s", 1, 1, shareable("gpu-0", "10Gi")))
	a.ObserveClaim(state("a", 2, share("gpu-0", "6Gi")))
	a.ObserveSlice(sliceOf("s", 2, 1, shareable("gpu-0", "5Gi")))
	assert.Equal(t, []Double{{
		Device: gpu("gpu-0"), Reason: SharedCapacityExceeded, Resource: "memory", Owners: []Owner{owned("a")},
	}}, a.Doubles())
	assert.NotNil(t, a.Grant(state("b", 0, share("gpu-0", "0")), 1, start), "nothing is granted on what is exceeded")
	a.ObserveSlice(sliceOf("s", 3, 1, shareable("gpu-0", "20Gi")))
	assert.Empty(t, a.Doubles())
	assert.Nil(t, a.Grant(state("b", 0, share("gpu-0", "14Gi")), 1, start))
}

func TestWholeAndSharedExcludeEachOther(t *testing.T) {
	a := New()
	a.ObserveSlice(sliceOf("s", 1, 1, shareable("gpu-0", "10Gi"), shareable("gpu-1", "10Gi")))
	require.Nil(t, a.Grant(state("a", 0, share("gpu-0", "1Gi"), whole("gpu-1")), 1, start))
	assert.Equal(t, DeviceInUse, a.Grant(state("b", 0, whole("gpu-0")), 1, start).Reason)
	assert.Equal(t, DeviceInUse, a.Grant(state("b", 0, share("gpu-1", "1Gi")), 1, start).Reason)
	assert.Equal(t, Malformed, a.Grant(state("c", 0, whole("gpu-2"), share("gpu-2", "1Gi")), 1, start).Reason)
	assert.Equal(t, Malformed, a.Grant(state("c", 0, whole("gpu-2"), whole("gpu-2")), 1, start).Reason)
	assert.Equal(t, Malformed, a.Grant(state("c", 0, share("gpu-0", "-1Gi")), 1, start).Reason)

	a.ObserveClaim(state("a", 2, share("gpu-0", "1Gi")))
	a.ObserveClaim(state("b", 2, whole("gpu-0")))
	assert.Equal(t, Doubled, a.Grant(state("c", 0, share("gpu-0", "1Gi")), 1, start).Reason)
	assert.Equal(t, []Double{{Device: gpu("gpu-0"), Reason: Doubled, Owners: []Owner{owned("a"), owned("b")}}},
		a.Doubles())
}

func TestAShareNeedsASliceThatAllowsIt(t *testing.T) {
	a := New()
	assert.Equal(t, NotKnown, a.Grant(state("a", 0, share("gpu-0", "1Gi")), 1, start).Reason)
	a.ObserveSlice(sliceOf("s", 1, 1, resourcev1.Device{Name: "gpu-0"}, shareable("gpu-1", "10Gi")))
	assert.Equal(t, NotShareable, a.Grant(state("a", 0, share("gpu-0", "1Gi")), 1, start).Reason)
	more := share("gpu-1", "1Gi")
	more.ConsumedCapacity["cores"] = resource.MustParse("1")
	assert.Equal(t, NotKnown, a.Grant(state("a", 0, more), 1, start).Reason, "a capacity that the slice does not name")
	more.ConsumedCapacity["cores"] = resource.MustParse("0")
	assert.Nil(t, a.Grant(state("a", 0, more), 1, start))
}

// A scheduler that tries again makes another shareID for the same, so its grants are not added up.
func TestGrantsOfOneClaimAreNotAddedUp(t *testing.T) {
	a := New()
	a.ObserveSlice(sliceOf("s", 1, 1, shareable("gpu-0", "10Gi")))
	require.Nil(t, a.Grant(state("a", 0, share("gpu-0", "6Gi")), 1, start))
	again := share("gpu-0", "7Gi")
	again.ShareID = ptr.To(types.UID("other"))
	require.Nil(t, a.Grant(state("a", 0, again), 1, start))
	require.Nil(t, a.Grant(state("a", 0, share("gpu-0", "5Gi")), 1, start))
	assert.Equal(t, "7Gi", used(a, "gpu-0"))
	assert.NotNil(t, a.Grant(state("b", 0, share("gpu-0", "4Gi")), 1, start))
	assert.Nil(t, a.Grant(state("b", 0, share("gpu-0", "3Gi")), 1, start))
	a.ObserveClaim(state("a", 2))
	assert.Equal(t, "3Gi", used(a, "gpu-0"))
}

func TestCountersOfThePool(t *testing.T) {
	a := New()
	a.ObserveSlice(countersOf("c", 1, 2, "40Gi"))
	a.ObserveSlice(sliceOf("s", 1, 2, partition("half-0", "20Gi"), partition("half-1", "20Gi"), partition("full", "40Gi"),
		partition("third", "20Gi"), partition("none", "0")))
	assert.Equal(t, CountersExceeded,
		a.Grant(state("b", 0, whole("half-0"), whole("half-1"), whole("third")), 1, start).Reason, "together")
	require.Nil(t, a.Grant(state("a", 0, whole("half-0")), 1, start))
	refusal := a.Grant(state("b", 0, whole("full")), 1, start)
	require.NotNil(t, refusal)
	assert.Equal(t, CountersExceeded, refusal.Reason)
	assert.Equal(t,
		"device gpu.example.com/node-1/full takes 40Gi of counter gpu/memory, which has 40Gi, of which 20Gi are used by "+
			"the devices "+
			"of ResourceClaim default/a", refusal.Message())
	assert.Equal(t, CountersExceeded, a.Grant(state("b", 0, whole("half-1"), whole("full")), 1, start).Reason)
	require.Nil(t, a.Grant(state("b", 0, whole("half-1")), 1, start))

	a.ObserveClaim(state("a", 2, whole("half-0")))
	a.ObserveClaim(state("b", 2, whole("full")))
	assert.Equal(t, []Double{{
		Device: gpu(""), Reason: CountersExceeded, Resource: "gpu/memory", Owners: []Owner{owned("a"), owned("b")},
	}}, a.Doubles())
	assert.Nil(t, a.Grant(state("c", 0, whole("none")), 1, start), "takes nothing of what is exceeded")
	a.ForgetClaim("b")
	a.ForgetClaim("a")
	assert.Nil(t, a.Grant(state("b", 0, whole("full")), 1, start))
}

// Two tries of one claim exclude each other, so the second is no reason against the first.
func TestGrantsOfOneClaimDoNotFightForCounters(t *testing.T) {
	a := New()
	a.ObserveSlice(countersOf("c", 1, 2, "40Gi"))
	a.ObserveSlice(sliceOf("s", 1, 2, partition("p0", "30Gi"), partition("p1", "30Gi")))
	require.Nil(t, a.Grant(state("a", 0, whole("p0")), 1, start))
	require.Nil(t, a.Grant(state("a", 0, whole("p1")), 1, start))
	assert.NotNil(t, a.Grant(state("b", 0, whole("p0")), 1, start))
	a.ObserveClaim(state("a", 2))
	assert.Nil(t, a.Grant(state("b", 0, whole("p0")), 1, start))
}

func TestCountersNeedTheWholePool(t *testing.T) {
	a := New()
	a.ObserveSlice(sliceOf("s", 1, 2, partition("p0", "20Gi"), resourcev1.Device{Name: "plain"}))
	assert.Equal(t, PoolIncomplete, a.Grant(state("a", 0, whole("p0")), 1, start).Reason)
	assert.Equal(t, NotKnown, a.Grant(state("a", 0, whole("p9")), 1, start).Reason)
	assert.Nil(t, a.Grant(state("b", 0, whole("plain")), 1, start))
	a.ObserveSlice(countersOf("c", 1, 2, "40Gi"))
	require.Nil(t, a.Grant(state("a", 0, whole("p0")), 1, start))

	a.ObserveSlice(sliceOf("s", 2, 3, partition("p1", "40Gi")))
	a.ObserveSlice(countersOf("c", 2, 3, "40Gi"))
	assert.Equal(t, PoolIncomplete, a.Grant(state("c", 0, whole("p1")), 1, start).Reason,
		"p0 may be in the third, and a has it")
	a.GiveUp("a", start.Add(1))
	a.GiveUp("b", start.Add(1))
	refusal := a.Grant(state("c", 0, whole("p1")), 1, start)
	assert.Equal(t, PoolIncomplete, refusal.Reason, "somebody may have a device of the third that nobody has seen")
	assert.Empty(t, refusal.Owners)

	a.ObserveSlice(countersOf("c", 1, 3, "40Gi"))
	a.ObserveSlice(sliceOf("s", 1, 3, partition("p1", "20Gi")))
	a.ObserveSlice(countersOf("c2", 1, 3, "40Gi"))
	assert.Equal(t, PoolIncomplete, a.Grant(state("c", 0, whole("p1")), 1, start).Reason, "two slices define the counter")
	a.ForgetSlice("c2")
	a.ObserveSlice(countersOf("c", 1, 2, "40Gi"))
	a.ObserveSlice(sliceOf("s", 1, 2, partition("p1", "20Gi")))
	assert.Nil(t, a.Grant(state("c", 0, whole("p1")), 1, start))
}

// A driver that starts again publishes nothing for a while: what its pool has is known to nobody then.
func TestNothingIsGrantedOfAPoolWithoutSlices(t *testing.T) {
	publish := func(a *Account) {
		a.ObserveSlice(countersOf("c", 1, 2, "40Gi"))
		a.ObserveSlice(sliceOf("s", 1, 2, partition("part-a", "20Gi"), partition("whole", "40Gi")))
	}
	for name, observe := range map[string]func(a *Account){
		"slices are gone": func(a *Account) {
			publish(a)
			a.ObserveClaim(state("a", 1, whole("part-a")))
			a.ForgetSlice("c")
			a.ForgetSlice("s")
		},
		"after a restart": func(a *Account) { a.ObserveClaim(state("a", 1, whole("part-a"))) },
	} {
		t.Run(name, func(t *testing.T) {
			a := New()
			observe(a)
			refusal := a.Grant(state("b", 0, whole("whole")), 1, start)
			require.NotNil(t, refusal)
			assert.Equal(t, NotKnown, refusal.Reason)
			assert.Equal(t, NotKnown, a.Grant(state("b", 0, whole("part-b"), whole("whole")), 1, start).Reason)
			publish(a)
			assert.Empty(t, a.Doubles())
			assert.Equal(t, CountersExceeded, a.Grant(state("b", 0, whole("whole")), 1, start).Reason)
		})
	}
}

// Nobody knows what a device takes of the counters that its pool publishes no more: kube-scheduler counts nothing
// (kubernetes#140802), and gives the rest twice.
func TestCountersAroundADeviceThatIsPublishedNoMore(t *testing.T) {
	parts := []resourcev1.Device{partition("part-b", "20Gi"), partition("whole", "40Gi"), {Name: "plain"}}
	for name, observe := range map[string]func(a *Account){
		"published again without it": func(a *Account) {
			a.ObserveSlice(countersOf("c", 1, 2, "40Gi"))
			a.ObserveSlice(sliceOf("s", 1, 2, append(slices.Clone(parts), partition("part-a", "20Gi"))...))
			a.ObserveClaim(state("a", 1, whole("part-a")))
			a.ObserveSlice(countersOf("c", 2, 2, "40Gi"))
			a.ObserveSlice(sliceOf("s", 2, 2, parts...))
		},
		"after a restart": func(a *Account) {
			a.ObserveClaim(state("a", 1, whole("part-a")))
			a.ObserveSlice(countersOf("c", 2, 2, "40Gi"))
			a.ObserveSlice(sliceOf("s", 2, 2, parts...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := New()
			observe(a)
			refusal := a.Grant(state("b", 0, whole("whole")), 1, start)
			require.NotNil(t, refusal)
			assert.Equal(t, PoolIncomplete, refusal.Reason)
			assert.Equal(t, []Owner{owned("a")}, refusal.Owners)
			assert.Contains(t, refusal.Message(), "ResourceClaim default/a has: no ResourceSlice names these any more")
			assert.Contains(t, refusal.In("other").Message(), "ResourceClaim (of another namespace) has")
			assert.Equal(t, PoolIncomplete, a.Grant(state("b", 0, whole("part-b")), 1, start).Reason)
			require.Nil(t, a.Grant(state("p", 0, whole("plain")), 1, start), "takes no counters")

			a.ObserveSlice(sliceOf("s", 2, 2, append(slices.Clone(parts), partition("part-a", "20Gi"))...))
			assert.Equal(t, CountersExceeded, a.Grant(state("b", 0, whole("whole")), 1, start).Reason)
			a.ObserveSlice(sliceOf("s", 2, 2, parts...))
			a.ForgetClaim("a")
			assert.Nil(t, a.Grant(state("b", 0, whole("whole")), 1, start))
		})
	}
}

func shareable(name, memory string) resourcev1.Device {
	return resourcev1.Device{
		Name: name, AllowMultipleAllocations: ptr.To(true),
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}},
	}
}

// partition is a device that takes memory of the counter set gpu.
func partition(name, memory string) resourcev1.Device {
	return resourcev1.Device{Name: name, ConsumesCounters: []resourcev1.DeviceCounterConsumption{{
		CounterSet: "gpu", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse(memory)}},
	}}}
}

// deviceOf is a device that there is, with what its slice says now.
func deviceOf(a *Account, name string) *device {
	defer a.reading()()
	for _, p := range a.pools {
		if d := p.devices[name]; d != nil {
			return d
		}
	}
	return nil
}

// used is how much of a device's memory is used.
func used(a *Account, device string) string {
	used := deviceOf(a, device).used.value("memory")
	return used.String()
}
