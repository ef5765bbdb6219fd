package schedulerplugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
)

// claiming is a pod that names claims of devices.
func claiming(name, claims string) *v1.Pod {
	pod := newPod(name, "1")
	pod.Annotations = map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: claims}
	return pod
}

// withDevices gives node a one GPU; claims c and d exist.
func withDevices(t *testing.T) *fixture {
	f := newFixture(t)
	f.claims = map[string]bool{"c": true, "d": true}
	f.ledger.ObserveDevices("a", []devices.Device{{Name: "gpu-0", Resource: "nvidia.com/gpu", ID: "gpu-0"}})
	return f
}

func TestFilterLooksAtDevices(t *testing.T) {
	cases := map[string]struct {
		claims string
		taken  string // the claim of a pod that has the device
		node   string
		want   fwk.Code
		reason string
	}{
		"free": {"c", "", "a", fwk.Success, ""},
		"no devices there": {
			"c", "", "b", fwk.Unschedulable,
			"GlobalReserve: the free devices of the node do not meet the pod's claims",
		},
		"too few": {
			"c,d", "", "a", fwk.Unschedulable,
			"GlobalReserve: the free devices of the node do not meet the pod's claims",
		},
		"taken": {
			"c", "d", "a", fwk.Unschedulable,
			"GlobalReserve: the free devices of the node do not meet the pod's claims",
		},
		"claim in use": {
			"c", "c", "b", fwk.UnschedulableAndUnresolvable,
			"GlobalReserve: another pod has a device claim of the pod",
		},
		"no such claim": {
			"e", "", "a", fwk.UnschedulableAndUnresolvable,
			"GlobalReserve: a device claim of the pod cannot be used",
		},
		"bad annotation": {
			"c,c", "", "a", fwk.UnschedulableAndUnresolvable,
			"GlobalReserve: a device claim of the pod cannot be used",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := withDevices(t)
			if tc.taken != "" {
				f.bound(claiming("other", tc.taken), "a")
			}
			pod, state := claiming("p", tc.claims), newState()
			_, status := f.PreFilter(t.Context(), state, pod, []fwk.NodeInfo{nodeInfo("a"), nodeInfo("b")})
			require.True(t, status.IsSuccess(), status.Message())
			status = f.filter(state, pod, tc.node)
			assert.Equal(t, tc.want, status.Code())
			assert.Equal(t, tc.reason, status.Message())
		})
	}
}

// Of pods with claims each is another: the device that one gets the next cannot have.
func TestPodsWithClaimsHaveNoSignature(t *testing.T) {
	f := withDevices(t)
	for name, pod := range map[string]*v1.Pod{"a claim": claiming("p", "c"), "a bad annotation": claiming("p", "c,c")} {
		_, status := f.SignPod(t.Context(), pod)
		assert.Equal(t, fwk.Unschedulable, status.Code(), name)
	}
}

// Preemption asks whether the device would be there without its pod. A pod that is nominated is taken to have one.
func TestPreemptionForDevices(t *testing.T) {
	f := withDevices(t)
	victim, pod := claiming("victim", "d"), claiming("p", "c")
	f.bound(victim, "a")
	state := f.begin(pod)
	require.Equal(t, fwk.Unschedulable, f.filter(state, pod, "a").Code())
	f.RemovePod(t.Context(), state, pod, fakePod{pod: victim}, nodeInfo("a"))
	assert.True(t, f.filter(state, pod, "a").IsSuccess())
	f.claims["e"] = true
	f.AddPod(t.Context(), state, pod, fakePod{pod: claiming("nominated", "e")}, nodeInfo("a"))
	assert.False(t, f.filter(state, pod, "a").IsSuccess())
}

// An update that changes something else wakes nobody.
func TestOtherUpdates(t *testing.T) {
	f := withDevices(t)
	pod, other := claiming("p", "c"), claiming("p", "c")
	other.Labels = map[string]string{"x": "y"}
	bound := claiming("p", "d")
	bound.Spec.NodeName = "a"
	f.known(pod)
	f.waker.updated(pod, other)
	f.waker.updated(pod, bound)
	select {
	case woken := <-f.handle.activated:
		t.Fatal(woken, "was woken")
	case <-time.After(2 * afterUpdate):
	}
}
