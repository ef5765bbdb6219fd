package dra

import (
	"maps"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/dra/account"
)

const (
	gpuResource = "nvidia.com/gpu"
	classPrefix = "deviceclass.resource.kubernetes.io/"
)

// classOf is a DeviceClass for a resource, or for none, of the devices that an expression selects.
func classOf(name, resource, expression string) *resourcev1.DeviceClass {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if resource != "" {
		class.Spec.ExtendedResourceName = &resource
	}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
	return class
}

// sliceOn has devices of a driver, each of some product, on a node.
func sliceOn(name, driver, node string, products ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
		},
	}
	for i, product := range products {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name: product + string(rune('0'+i)), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"product": {StringValue: &product},
			},
		})
	}
	return s
}

// What a slice says of counters that devices share is kept.
func TestLeanSlice(t *testing.T) {
	full := sliceOn("s", "d", "n", "x")
	full.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "gpu"}}
	full.Spec.Devices[0].ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "gpu"}}
	kept := full.Spec.DeepCopy()
	full.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "nobody looks at it"}}
	lean, err := leanSlice(full)
	require.NoError(t, err)
	assert.Equal(t, *kept, lean.(*resourcev1.ResourceSlice).Spec)
}

// Devices of a slice that is gone are given to nobody.
func TestSliceIsGone(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		require.NoError(w.t, w.client.ResourceV1().ResourceSlices().Delete(w.t.Context(), "stock", metav1.DeleteOptions{}))
		synctest.Wait()
		refusal := w.asks("a", "gpu-0", w.version)
		require.NotNil(w.t, refusal, "nobody knows the device")
		assert.Equal(w.t, account.NotKnown, refusal.Reason)
	})
}

const gpus = `device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].product != "T4"`

// TestOffers has DeviceClasses come, change and go, and slices too: what they offer is by the devices that a class
// selects.
func TestOffers(t *testing.T) {
	before := func(w *world) {
		for _, object := range []any{
			classOf("gpus", gpuResource, gpus), classOf("nics", "", `device.driver == "dra.net"`),
			classOf("broken", "", `device.attributes["other"].missing`),
		} {
			require.NoError(w.t, w.client.Tracker().Add(object.(*resourcev1.DeviceClass)))
		}
		for _, s := range []*resourcev1.ResourceSlice{
			sliceOn("gpus-a", "gpu.nvidia.com", "a", "T4", "H100"), sliceOn("gpus-b", "gpu.nvidia.com", "b", "T4"),
			sliceOn("nics-a", "dra.net", "a", "x"),
		} {
			require.NoError(w.t, w.client.Tracker().Add(s))
		}
	}
	inWorld(t, nil, func(w *world) {
		kinds := w.client.ResourceV1()
		synctest.Wait()
		want := map[string]string{
			"gpus-a": "a: [" + classPrefix + "gpus " + gpuResource + "]; ", "nics-a": "a: [" + classPrefix + "nics]; ",
		}
		step := func(err error) {
			t.Helper()
			require.NoError(t, err)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			assert.Equal(t, want, maps.Clone(w.offered))
		}
		step(nil)
		_, err := kinds.DeviceClasses().Update(t.Context(), classOf("gpus", "", gpus), metav1.UpdateOptions{})
		want["gpus-a"] = "a: [" + classPrefix + "gpus]; "
		step(err)
		_, err = kinds.ResourceSlices().Update(t.Context(), sliceOn("gpus-b", "gpu.nvidia.com", "b", "L4"),
			metav1.UpdateOptions{})
		want["gpus-b"] = "b: [" + classPrefix + "gpus]; "
		step(err)
		delete(want, "gpus-a")
		step(kinds.ResourceSlices().Delete(t.Context(), "gpus-a", metav1.DeleteOptions{}))
		delete(want, "gpus-b")
		step(kinds.DeviceClasses().Delete(t.Context(), "gpus", metav1.DeleteOptions{}))
	}, before)
}

// Where two classes name one resource, it is for the devices of one of them, as for kube-scheduler: the newer one.
func TestTwoClassesOfOneResource(t *testing.T) {
	old, newer := classOf("old", gpuResource, `device.driver == "old"`), classOf("new", gpuResource, gpus)
	old.CreationTimestamp, newer.CreationTimestamp = metav1.Unix(1, 0), metav1.Unix(2, 0)
	inWorld(t, nil, func(w *world) {
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Equal(t, map[string]string{
			"a": "a: [" + classPrefix + "old]; ", "b": "b: [" + classPrefix + "new " + gpuResource + "]; ",
		}, w.offered)
	}, func(w *world) {
		for _, class := range []*resourcev1.DeviceClass{old, newer} {
			require.NoError(w.t, w.client.Tracker().Add(class))
		}
		require.NoError(w.t, w.client.Tracker().Add(sliceOn("a", "old", "a", "x")))
		require.NoError(w.t, w.client.Tracker().Add(sliceOn("b", "gpu.nvidia.com", "b", "x")))
	})
}

// TestNodesOfDevices has slices say in each way where their devices are.
func TestNodesOfDevices(t *testing.T) {
	some := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{
		Key: "rack", Operator: v1.NodeSelectorOpIn, Values: []string{"1"},
	}}}}}
	o := newOffers(nil)
	o.observeClass(classOf("c", "", "true"))
	o.listed = true
	const names = "[" + classPrefix + "c]; "
	for name, tc := range map[string]struct {
		slice func(s *resourcev1.ResourceSliceSpec)
		want  string
	}{
		"a node":     {func(s *resourcev1.ResourceSliceSpec) { s.NodeName = ptr.To("n") }, "n: " + names},
		"all nodes":  {func(s *resourcev1.ResourceSliceSpec) { s.AllNodes = ptr.To(true) }, "all nodes: " + names},
		"some nodes": {func(s *resourcev1.ResourceSliceSpec) { s.NodeSelector = some }, "some nodes: " + names},
		"no nodes":   {func(*resourcev1.ResourceSliceSpec) {}, ""},
		"each device": {
			func(s *resourcev1.ResourceSliceSpec) {
				s.PerDeviceNodeSelection = ptr.To(true)
				s.Devices = []resourcev1.Device{
					{Name: "a", NodeName: ptr.To("n")},
					{Name: "b", AllNodes: ptr.To(true)},
					{Name: "c", NodeName: ptr.To("n")},
					{Name: "d", NodeSelector: some},
					{Name: "e", NodeSelector: some.DeepCopy()},
				}
			}, "n: " + names + "all nodes: " + names + "some nodes: " + names,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Devices: []resourcev1.Device{{Name: "a"}}}}
			tc.slice(&s.Spec)
			w := &world{offered: map[string]string{}}
			o.onOffered = w.onOffered
			s.Name = "s"
			o.observeSlice(s)
			assert.Equal(t, tc.want, w.offered["s"])
		})
	}
}
