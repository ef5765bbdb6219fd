package account

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// big is a cluster of 1,000 nodes with 10 devices each, of which 9 are allocated.
func big(b testing.TB) *Account {
	a := New()
	for node := range 1000 {
		a.ObserveSlice(nodeSlice(node, 10))
		for device := range 9 {
			c := state(fmt.Sprintf("claim-%d-%d", node, device), 1, onNode(node, device))
			a.ObserveClaim(c)
		}
	}
	require.Len(b, a.claims, 9000)
	a.Doubles()
	return a
}

func nodeSlice(node, devices int) *resourcev1.ResourceSlice {
	s := sliceOf("slice-"+strconv.Itoa(node), 1, 1)
	s.Spec.Pool.Name = "node-" + strconv.Itoa(node)
	s.Spec.NodeName = ptr.To(s.Spec.Pool.Name)
	for device := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: "gpu-" + strconv.Itoa(device)})
	}
	return s
}

func onNode(node, device int) resourcev1.DeviceRequestAllocationResult {
	r := whole("gpu-" + strconv.Itoa(device))
	r.Pool = "node-" + strconv.Itoa(node)
	return r
}

// BenchmarkGrant is a claim that is granted, allocated, and gone: all that one allocation costs.
func BenchmarkGrant(b *testing.B) {
	a := big(b)
	asked, gone := state("new", 0, onNode(500, 9)), state("new", 0)
	b.ReportAllocs()
	base := int64(1)
	for b.Loop() {
		if refusal := a.Grant(asked, base, start); refusal != nil {
			b.Fatal(refusal.Message())
		}
		b.StopTimer()
		base++
		gone.ResourceVersion = strconv.FormatInt(base, 10)
		a.ObserveClaim(gone)
		b.StartTimer()
	}
}

func BenchmarkRefusal(b *testing.B) {
	a := big(b)
	asked := state("new", 0, onNode(500, 3))
	b.ReportAllocs()
	for b.Loop() {
		if a.Grant(asked, 1, start) == nil {
			b.Fatal("granted twice")
		}
	}
}

func BenchmarkObserveClaim(b *testing.B) {
	a := big(b)
	states := []*resourcev1.ResourceClaim{state("new", 0), state("new", 0, onNode(500, 9))}
	b.ReportAllocs()
	version := int64(0)
	for b.Loop() {
		version++
		c := states[version%2]
		c.ResourceVersion = strconv.FormatInt(version, 10)
		a.ObserveClaim(c)
	}
}

func BenchmarkObserve10000Slices(b *testing.B) {
	for _, devices := range []int{8, 128} {
		b.Run(strconv.Itoa(devices)+" devices", func(b *testing.B) {
			slices := make([]*resourcev1.ResourceSlice, 10000)
			for i := range slices {
				slices[i] = nodeSlice(i, devices)
			}
			b.ReportAllocs()
			for b.Loop() {
				a := New()
				for _, s := range slices {
					a.ObserveSlice(s)
				}
			}
		})
	}
}

// One pool of 10,000 slices changes its generation one slice after the other.
func BenchmarkOnePoolOf10000Slices(b *testing.B) {
	a := New()
	b.ReportAllocs()
	generation := int64(0)
	for b.Loop() {
		generation++
		for i := range 10000 {
			s := nodeSlice(i, 1)
			s.Spec.Pool = resourcev1.ResourcePool{Name: "all", Generation: generation, ResourceSliceCount: 10000}
			s.Spec.Devices[0].Name = s.Name
			a.ObserveSlice(s)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	a := big(b)
	b.Run("doubles", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a.Doubles()
		}
	})
	b.Run("devices", func(b *testing.B) {
		b.ReportAllocs()
		var list []DeviceState
		for b.Loop() {
			list = a.AppendDevices(list[:0])
		}
	})
}

// A slice of one pool of 10,000 changes before each grant: that makes the pool anew.
func BenchmarkGrantAfterAChangeOf10000Slices(b *testing.B) {
	a := New()
	slices := make([]*resourcev1.ResourceSlice, 10000)
	for i := range slices {
		slices[i] = nodeSlice(i, 1)
		slices[i].Spec.Pool = resourcev1.ResourcePool{Name: "node-1", Generation: 1, ResourceSliceCount: 10000}
		slices[i].Spec.Devices[0].Name = slices[i].Name
		slices[i].Spec.NodeName = nil
		a.ObserveSlice(slices[i])
		if i%10 > 0 {
			a.ObserveClaim(state("claim-"+strconv.Itoa(i), 1, whole(slices[i].Name)))
		}
	}
	asked := state("new", 0, whole("slice-0"))
	b.ReportAllocs()
	for b.Loop() {
		a.ObserveSlice(slices[500])
		if refusal := a.Try(asked, 1); refusal != nil {
			b.Fatal(refusal.Message())
		}
	}
}

// BenchmarkGrantShare is BenchmarkGrant for a share of a device that takes counters, too.
func BenchmarkGrantShare(b *testing.B) {
	a := New()
	device := shareable("gpu-0", "10Gi")
	device.ConsumesCounters = partition("", "30Gi").ConsumesCounters
	a.ObserveSlice(countersOf("c", 1, 2, "40Gi"))
	a.ObserveSlice(sliceOf("s", 1, 2, device))
	a.ObserveClaim(state("other", 1, share("gpu-0", "1Gi")))
	a.Doubles()
	asked := state("new", 0, share("gpu-0", "1Gi"))
	b.ReportAllocs()
	for b.Loop() {
		if refusal := a.Try(asked, 1); refusal != nil {
			b.Fatal(refusal.Message())
		}
	}
}
