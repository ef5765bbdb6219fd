package extendeddevices

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// A server that starts does not believe annotations that somebody edited while none was there: the pod's devices are
// given to nobody else, and the pod says again which they are.
func TestAnnotationsEditedWhileNoServerWasThere(t *testing.T) {
	for name, edited := range map[string]struct{ claims, given, put string }{
		"nothing":            {"one", "GPU-a", ""},
		"another device":     {"one", "GPU-b", "GPU-a"},
		"no device":          {"one", "", "GPU-a"},
		"another claim":      {"two", "GPU-a", "GPU-a"},
		"nothing left":       {"", "", "GPU-a"},
		"no list of claims":  {"one,,two", "GPU-a", "GPU-a"},
		"no list of devices": {"one", ",GPU-b", "GPU-a"},

		"nothing, by container":         {"main=one;log=one", "main=GPU-a;log=GPU-a", ""},
		"another device of a container": {"main=one", "main=GPU-b", "main=GPU-a"},
		"another container":             {"log=one", "main=GPU-a", "log=GPU-a"},
		"a container without claims":    {"main=one;log=", "main=GPU-a;log=GPU-b", "GPU-a"},
		"containers of another claim":   {"main=two", "main=GPU-a", "GPU-a"},
		"devices of no container":       {"main=one", ";=GPU-b;GPU-b", "main=GPU-a"},
	} {
		for _, standby := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, standby %t", name, standby), func(t *testing.T) {
				w := makeWorld(t, device("a", "n1", "K80"), device("b", "n1", "K80"), heldBy("p", "one", "a"),
					claimFor(t, "two", "{}"), claimFor(t, "three", "{}"))
				w.startAround(standby, podObject("p", edited.claims, "n1", edited.given))
				assert.Equal(t, ledger.DeviceClaimInUse, w.fits(w.pod("q", "one", "", ""), "n1"))
				assert.Equal(t, "GPU-b", w.bind("q", "two", "n1"))
				assert.Equal(t, ledger.InsufficientDevices, w.fits(w.pod("r", "three", "", ""), "n1"))
				assert.Equal(t, []string{"a"}, w.awaitClaim("one", v1alpha1.ExtendedResourceClaimBound).ExtendedResources)
				if edited.put != "" {
					assert.Equal(t, edited.put, (<-w.annotated)[v1alpha1.ExtendedResourcesAnnotation])
				}
				assert.Empty(t, w.annotated, "a pod that says what is so is left alone")
			})
		}
	}
}

// heldBy is a claim whose status says that a pod has devices by it.
func heldBy(pod, name string, devices ...string) *v1alpha1.ExtendedResourceClaim {
	return &v1alpha1.ExtendedResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec:       v1alpha1.ExtendedResourceClaimSpec{ResourceName: gpu, Count: int32(len(devices))},
		Status: v1alpha1.ExtendedResourceClaimStatus{
			Phase: v1alpha1.ExtendedResourceClaimBound, NodeName: "n1", ExtendedResources: devices,
			PodRef: &v1alpha1.PodReference{Name: pod, UID: types.UID("uid-" + pod)},
		},
	}
}

// A server may end before it has written the status of each claim of a pod: what the pod says of the others counts.
func TestClaimsWhoseStatusWasNotWritten(t *testing.T) {
	for name, given := range map[string][2]string{
		"list": {"one,two", "GPU-a,GPU-b"}, "containers": {"main=one;log=two", "main=GPU-a;log=GPU-b"},
	} {
		for _, standby := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, standby %t", name, standby), func(t *testing.T) {
				w := makeWorld(t, device("a", "n1", "K80"), device("b", "n1", "K80"), heldBy("p", "one", "a"),
					claimFor(t, "two", "{}"), claimFor(t, "three", "{}"))
				w.startAround(standby, podObject("p", given[0], "n1", given[1]))
				assert.Equal(t, ledger.DeviceClaimInUse, w.fits(w.pod("q", "two", "", ""), "n1"))
				assert.Equal(t, ledger.InsufficientDevices, w.fits(w.pod("r", "three", "", ""), "n1"))
			})
		}
	}
}

// A claim that is deleted, or made anew for another resource, hides no device in use from a server that starts: neither
// where its status says what the pod has, nor where it has none yet, nor where a device of the other resource has the
// same ID, whatever the first server that took over has written of it.
func TestClaimMadeAnewForAnotherResource(t *testing.T) {
	const fpga = "example.com/fpga"
	free, taken := ledger.Fits, ledger.InsufficientDevices
	for name, tc := range map[string]struct {
		has   []string      // by the status of the claim
		id    string        // of the device of the other resource
		other ledger.Reason // of a pod that asks for that
	}{
		"status": {[]string{"a"}, "GPU-a", free}, "status, long after": {[]string{"a", "f"}, "GPU-a", taken},
		"no status": {nil, "FPGA", free}, "the same ID": {nil, "GPU-a", taken},
		"gone": {nil, "GPU-a", taken},
	} {
		for _, standby := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, standby %t", name, standby), func(t *testing.T) {
				other := device("f", "n1", "X")
				other.Spec.ResourceName, other.Spec.DeviceID = fpga, tc.id
				objects := []runtime.Object{
					device("a", "n1", "K80"), other, claimFor(t, "gpu", "{}"), claimFor(t, "fpga", "resourceName: "+fpga),
				}
				claim := heldBy("p", "one", tc.has...)
				if claim.Spec = (v1alpha1.ExtendedResourceClaimSpec{ResourceName: fpga, Count: 1}); name != "gone" {
					objects = append(objects, claim)
				}
				w := makeWorld(t, objects...)
				w.startAround(standby, podObject("p", "one", "n1", "GPU-a"))
				assert.Equal(t, taken, w.fits(w.pod("q", "gpu", "", ""), "n1"), "it is in use")
				assert.Equal(t, tc.other, w.fits(w.pod("r", "fpga", "", ""), "n1"), "in use only where nobody knows which it is")
			})
		}
	}
}

// A claim that had lost a device when its status was written does not say which: the pod does.
func TestLostDeviceThatComesBack(t *testing.T) {
	lost := heldBy("p", "two", "a")
	lost.Spec.Count, lost.Status.Phase = 2, v1alpha1.ExtendedResourceClaimLost
	w := makeWorld(t, device("a", "n1", "K80"), lost)
	w.startAround(true, podObject("p", "two", "n1", "GPU-a,GPU-b"))
	_, err := w.devices().Create(t.Context(), device("b", "n1", "K80"), metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, "two", w.awaitDevice("b", v1alpha1.ExtendedResourceBound).ClaimRef.Name)
}

// Pods that say nothing of devices are asked about as well, all at a start: that makes no garbage.
func TestPodsWithoutDevicesCostLittle(t *testing.T) {
	w := makeWorld(t)
	w.controller.claims.set(heldBy("p", "one", "a"))
	pod := w.pod("plain", "", "n1", "")
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.controller.Devices(pod) }))
}

// A server that starts reads what its predecessor passed to the containers of a pod, also where that wrote no status.
func TestDevicesOfContainersAfterAStart(t *testing.T) {
	const asked, given = "main=one,two;log=two", "main=GPU-a,GPU-b,GPU-c;log=GPU-b,GPU-c"
	for name, started := range map[string]struct{ claims, given string }{
		"as it was written":                {asked, given},
		"the claims as a list":             {"one,two", given},
		"the devices as a list":            {asked, "GPU-a,GPU-b,GPU-c"},
		"nobody knows what is for whom":    {asked, "main=GPU-a,GPU-b;log=GPU-b,GPU-c"},
		"the claims of another pod's text": {"main=two,;", given},
	} {
		t.Run(name, func(t *testing.T) {
			w, podsKnown := newWorldAtStart(t, device("a", "n1", "K80"), device("b", "n1", "K80"), device("c", "n1", "K80"),
				device("d", "n1", "K80"),
				claimFor(t, "one", "{}"), claimFor(t, "two", "count: 2"), claimFor(t, "next", "{}"))
			w.observe(w.pod("p", started.claims, "n1", started.given))
			podsKnown()
			assert.Equal(t, "GPU-d", w.bind("q", "next", "n1"), "the others are taken")
			if started.claims == asked || started.claims == "one,two" {
				assert.Equal(t, []string{"a"}, w.awaitClaim("one", v1alpha1.ExtendedResourceClaimBound).ExtendedResources)
				assert.Equal(t, []string{"b", "c"}, w.awaitClaim("two", v1alpha1.ExtendedResourceClaimBound).ExtendedResources)
			}
		})
	}
}

// What no claim says of a pod is what the pod says.
func TestAnnotationsOfWhatNoClaimNames(t *testing.T) {
	held := claimFor(t, "one", "{}")
	held.Status = v1alpha1.ExtendedResourceClaimStatus{
		ExtendedResources: []string{"gone"}, PodRef: &v1alpha1.PodReference{Name: "p", UID: "uid-p"},
	}
	w, _ := newWorldAtStart(t, device("a", "n1", "K80"), device("b", "n1", "K80"), held, claimFor(t, "two", "{}"))
	require.Equal(t, "GPU-b", w.controller.Devices(w.pod("p", "one", "n1", "GPU-b")).Given, "its device has no object")
	require.Equal(t, "GPU-a", w.controller.Devices(w.pod("other", "one", "n1", "GPU-a")).Given, "another pod's")
	assert.Nil(t, w.controller.Devices(w.pod("third", "", "n1", "")))
}

// A pod that asks by count for more than its claims say has the rest, too, after a start.
func TestCountsBesideClaimsAfterAStart(t *testing.T) {
	w, podsKnown := newWorldAtStart(t, device("a", "n1", "K80"), device("b", "n1", "K80"), device("c", "n1", "K80"),
		heldBy("p", "one", "a"), claimFor(t, "next", "{}"))
	pod := w.pod("p", "one", "n1", "GPU-a,GPU-b")
	pod.Request = pod.Request.AtLeast(w.ledger.Table(), gpu, 2)
	w.observe(pod)
	podsKnown()
	assert.Equal(t, "GPU-c", w.bind("q", "next", "n1"), "the others are taken")
}
