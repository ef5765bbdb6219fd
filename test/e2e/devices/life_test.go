package devices

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestLife is what becomes of claims and devices when what they rest on goes.
func TestLife(t *testing.T) {
	c := newCluster(t, setup{nodes: 3})
	c.startScheduler(scheduler)
	for name, test := range map[string]func(*cluster){
		"a device is deleted under a claim":     deviceDeleted,
		"a device is deleted under a slot":      slotLosesDevice,
		"the node goes":                         nodeGone,
		"the claim is deleted while in use":     claimDeleted,
		"the pod finishes":                      podFinished,
		"somebody else writes the status":       statusWritten,
		"a device is taken out of service":      deviceCordoned,
		"several claims and devices of one pod": severalClaims,
		"devices by name":                       exactDevices,
		"the annotation of a pod is changed":    annotationChanged,
	} {
		t.Run(name, func(t *testing.T) { test(c.in(t)) })
	}
	c.verdict.requireGood(t)
}

// run has a pod with a claim bound, and returns it.
func (c *cluster) run(name, claims string) *corev1.Pod {
	c.T.Helper()
	c.create(name, scheduler, claims)
	pod, _ := c.AwaitBound(name)
	for _, claim := range split(claims) {
		c.awaitClaim(claim, v1alpha1.ExtendedResourceClaimBound)
	}
	return pod
}

func (c *cluster) deleteDevice(name string) {
	c.T.Helper()
	require.NoError(c.T, c.Devices().Delete(c.T.Context(), name, metav1.DeleteOptions{}))
}

func (c *cluster) deleteClaim(name string) {
	c.T.Helper()
	require.NoError(c.T, c.DeviceClaims().Delete(c.T.Context(), name, metav1.DeleteOptions{}))
}

func condition(conditions []metav1.Condition) string { return conditions[0].Reason }

func deviceDeleted(c *cluster) {
	c.CreateDevice("lost", "node-0", "lost")
	c.CreateDeviceClaim("loses", "lost", 1)
	c.run("loser", "loses")
	c.deleteDevice("lost")
	claim := c.awaitClaim("loses", v1alpha1.ExtendedResourceClaimLost)
	require.Equal(c.T, "DeviceDeleted", condition(claim.Status.Conditions))
	require.Equal(c.T, "loser", claim.Status.PodRef.Name)
	c.AwaitEvent("ExtendedResourceClaim", "loses", "DeviceDeleted", "GPU-lost")

	// Its ID is still with the pod: the device that comes back under another name is not given out again.
	c.Apply(`{apiVersion: globalreserve.io/v1alpha1, kind: ExtendedResource, metadata: {name: found},
		spec: {nodeName: node-0, resourceName: nvidia.com/gpu, deviceID: GPU-lost, properties: {model: lost}}}`)
	c.awaitDevice("found", v1alpha1.ExtendedResourceBound)
	claim = c.awaitClaim("loses", v1alpha1.ExtendedResourceClaimBound)
	require.Equal(c.T, []string{"found"}, claim.Status.ExtendedResources)
	c.Delete("loser")
	c.awaitDevice("found", v1alpha1.ExtendedResourceAvailable)
}

func nodeGone(c *cluster) {
	c.CreateDevice("away", "node-2", "away")
	c.CreateDeviceClaim("stays", "away", 1)
	c.run("stayer", "stays")
	c.DeleteNode("node-2")
	device := c.awaitDevice("away", v1alpha1.ExtendedResourceOffline)
	require.Equal(c.T, "NodeGone", condition(device.Status.Conditions))
	c.AwaitEvent("ExtendedResource", "away", "NodeGone", "node-2")

	c.CreateDeviceClaim("comes-late", "away", 1)
	c.create("latecomer", scheduler, "comes-late")
	c.AwaitRefused("latecomer")
	c.Delete("stayer") // its node is gone, and somebody takes it away
	c.awaitClaim("stays", v1alpha1.ExtendedResourceClaimPending)
	c.awaitDevice("away", v1alpha1.ExtendedResourceOffline)
	require.Empty(c.T, c.Pod("latecomer").Spec.NodeName)
	c.Delete("latecomer")
}

func claimDeleted(c *cluster) {
	c.CreateDevice("kept", "node-0", "kept")
	c.CreateDeviceClaim("goes", "kept", 1)
	c.run("user", "goes")
	c.deleteClaim("goes")
	c.CreateDeviceClaim("other", "kept", 1)
	c.create("other", scheduler, "other")
	c.AwaitRefused("other")
	claim := c.awaitClaim("goes", v1alpha1.ExtendedResourceClaimBound)
	require.NotNil(c.T, claim.DeletionTimestamp)
	require.Equal(c.T, []string{v1alpha1.ExtendedResourceClaimFinalizer}, claim.Finalizers)
	device := c.awaitDevice("kept", v1alpha1.ExtendedResourceBound)
	require.Equal(c.T, claim.UID, device.Status.ClaimRef.UID)
	controlplane.Never(c.T, func() bool {
		_, err := c.DeviceClaims().Get(c.T.Context(), "goes", metav1.GetOptions{})
		return err != nil || c.Pod("other").Spec.NodeName != ""
	}, testbed.Never, testbed.Poll, "the device is counted until the pod goes")

	started := time.Now()
	c.Delete("user")
	pod, at := c.AwaitBound("other")
	require.Equal(c.T, "GPU-kept", given(pod))
	c.T.Logf("the device of a deleted claim was with the next pod %s after the first was deleted",
		at.Sub(started).Round(time.Millisecond))
	c.Eventually(func(t *assert.CollectT) {
		_, err := c.DeviceClaims().Get(c.T.Context(), "goes", metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), "the claim is still there: %v", err)
	})
	c.Delete("other")
}

func podFinished(c *cluster) {
	c.CreateDevice("once", "node-0", "once")
	c.CreateDeviceClaim("used-up", "once", 1)
	c.run("worker", "used-up")
	c.patchPod("worker", `{"status":{"phase":"Succeeded"}}`, "status")
	claim := c.awaitClaim("used-up", v1alpha1.ExtendedResourceClaimPending)
	require.Nil(c.T, claim.Status.PodRef)
	c.awaitDevice("once", v1alpha1.ExtendedResourceAvailable)
	next := c.run("worker-again", "used-up")
	require.Equal(c.T, "GPU-once", given(next))
	c.Delete("worker")
	c.awaitDevice("once", v1alpha1.ExtendedResourceBound)
	c.Delete("worker-again")
}

func statusWritten(c *cluster) {
	c.CreateDevice("drifts", "node-0", "drifts")
	c.CreateDeviceClaim("drifts", "drifts", 1)
	c.run("drifter", "drifts")
	claim := c.awaitClaim("drifts", v1alpha1.ExtendedResourceClaimBound)
	device := c.awaitDevice("drifts", v1alpha1.ExtendedResourceBound)
	wantClaim, wantDevice := claim.DeepCopy().Status, device.DeepCopy().Status

	_, err := c.DeviceClaims().Patch(c.T.Context(), "drifts", types.MergePatchType,
		[]byte(`{"status":{"phase":"Pending","podRef":null,"extendedResources":null,"conditions":null}}`),
		metav1.PatchOptions{}, "status")
	require.NoError(c.T, err)
	c.patchDevice("drifts", `{"status":{"phase":"Available","claimRef":null}}`, "status")

	claim = c.awaitClaim("drifts", v1alpha1.ExtendedResourceClaimBound)
	device = c.awaitDevice("drifts", v1alpha1.ExtendedResourceBound)
	require.Equal(c.T, wantClaim.PodRef, claim.Status.PodRef)
	require.Equal(c.T, wantClaim.ExtendedResources, claim.Status.ExtendedResources)
	require.Equal(c.T, wantDevice.ClaimRef, device.Status.ClaimRef)
	c.CreateDeviceClaim("drifts-too", "drifts", 1)
	require.Equal(c.T,
		map[string]string{"node-0": "GlobalReserve: the free devices of the node do not meet the pod's claims"},
		c.refusal("drifts-too", "node-0"),
		"what the status says decides nothing")
	c.Delete("drifter")
}

// refusal is why filter refuses nodes to a pod with a claim.
func (c *cluster) refusal(claim string, nodes ...string) map[string]string {
	c.T.Helper()
	c.awaitSeen(claim)
	pod := c.create("asks-"+claim, testbed.Nobody, claim)
	defer c.Delete(pod.Name)
	return c.Filter(pod, nodes...)
}

func deviceCordoned(c *cluster) {
	c.CreateDevice("resting", "node-1", "resting")
	c.CreateDeviceClaim("first", "resting", 1)
	c.CreateDeviceClaim("second", "resting", 1)
	c.run("first", "first")
	c.patchDevice("resting", `{"spec":{"unschedulable":true}}`)
	c.create("second", scheduler, "second")
	c.AwaitRefused("second")
	c.Delete("first")
	c.awaitDevice("resting", v1alpha1.ExtendedResourceAvailable)
	require.Empty(c.T, c.Pod("second").Spec.NodeName)
	started := time.Now()
	c.patchDevice("resting", `{"spec":{"unschedulable":null}}`)
	_, at := c.AwaitBound("second")
	c.T.Logf("bound %s after its device was back in service", at.Sub(started).Round(time.Millisecond))
	c.Delete("second")
}

func severalClaims(c *cluster) {
	c.CreateDevice("a0", "node-0", "several")
	c.CreateDevice("b0", "node-1", "several")
	c.CreateDevice("b1", "node-1", "several")
	c.CreateDevice("b2", "node-1", "other")
	c.CreateDeviceClaim("pair", "several", 2)
	c.CreateDeviceClaim("single", "other", 1)
	pod := c.run("several", "single,pair")
	require.Equal(c.T, "node-1", pod.Spec.NodeName, "the only node with all of them")
	require.Equal(c.T, "GPU-b2,GPU-b0,GPU-b1", given(pod), "in the order of the claims")
	require.Equal(c.T, []string{"b0", "b1"}, c.awaitClaim("pair", v1alpha1.ExtendedResourceClaimBound).
		Status.ExtendedResources)
	c.Delete("several")
	c.requireAvailable("a0", "b0", "b1", "b2")
}

// slotLosesDevice has a Reservation say which of the devices that it keeps are gone, and still keep them.
func slotLosesDevice(c *cluster) {
	c.CreateDevice("stays", "node-0", "slot")
	c.CreateDevice("goes", "node-0", "slot")
	c.CreateReservation("keeps", `{ttl: 10m, schedulerName: default-scheduler, consumers: {index: keeps},
		slots: [{name: a, requests: {cpu: 100m}, devices: [
			{resourceName: nvidia.com/gpu, count: 2, matchProperties: {model: slot}}]}]}`)
	both := []string{"GPU-goes", "GPU-stays"}
	require.Equal(c.T, both, c.AwaitReservation("keeps", v1alpha1.ReservationAvailable).Status.Slots[0].Devices)
	lost := func(want ...string) {
		c.T.Helper()
		c.Eventually(func(t *assert.CollectT) {
			slot := c.AwaitReservation("keeps", v1alpha1.ReservationAvailable).Status.Slots[0]
			assert.Equal(t, both, slot.Devices)
			assert.Equal(t, want, slot.LostDevices)
		})
	}
	c.deleteDevice("goes")
	lost("GPU-goes")
	c.CreateDevice("goes", "node-0", "slot")
	lost()
	require.NoError(c.T, c.Reservations().Delete(c.T.Context(), "keeps", metav1.DeleteOptions{}))
	c.requireAvailable("stays", "goes")
}

func exactDevices(c *cluster) {
	for _, name := range []string{"exact-0", "exact-1", "exact-2", "exact-3"} {
		c.CreateDevice(name, "node-0", "exact")
	}
	c.CreateDeviceClaim("exact", "exact", 2, "exact-3", "exact-2")
	require.Equal(c.T, "GPU-exact-2,GPU-exact-3", given(c.run("exact", "exact")))
	c.CreateDeviceClaim("exact-too", "exact", 1, "exact-3")
	c.create("exact-too", scheduler, "exact-too")
	c.AwaitRefused("exact-too")
	c.Delete("exact")
	pod, _ := c.AwaitBound("exact-too")
	require.Equal(c.T, "GPU-exact-3", given(pod))
	c.Delete("exact-too")
}

// annotationChanged has somebody write another device, nonsense and nothing to a pod that is bound: it keeps what it
// was given, and is told so again, and what was written is given to whom it is due.
func annotationChanged(c *cluster) {
	c.CreateDevice("mine", "node-0", "changed")
	c.CreateDevice("theirs", "node-0", "changed")
	c.CreateDeviceClaim("changed", "changed", 1)
	c.CreateDeviceClaim("changed-too", "changed", 1)
	was := given(c.run("changed", "changed"))
	other := map[string]string{"GPU-mine": "theirs", "GPU-theirs": "mine"}[was]
	for key, values := range map[string][]string{
		v1alpha1.ExtendedResourcesAnnotation:      {`"GPU-` + other + `"`, `"GPU-none"`, `"no,,list"`, "null"},
		v1alpha1.ExtendedResourceClaimsAnnotation: {`"changed-too"`, `"no,,list"`, "null"},
	} {
		for _, value := range values {
			c.patchPod("changed", fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value))
			c.Eventually(func(t *assert.CollectT) {
				pod := c.Pod("changed")
				assert.Equal(t, was, given(pod), "%s: %s", key, value)
				assert.Equal(t, "changed", pod.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation], "%s: %s", key, value)
			})
			c.awaitClaim("changed", v1alpha1.ExtendedResourceClaimBound)
			c.awaitDevice(other, v1alpha1.ExtendedResourceAvailable)
		}
	}
	require.Equal(c.T, "GPU-"+other, given(c.run("changed-too", "changed-too")))
	c.Delete("changed", "changed-too")
}

func (c *cluster) requireAvailable(names ...string) {
	c.T.Helper()
	for _, name := range names {
		c.awaitDevice(name, v1alpha1.ExtendedResourceAvailable)
	}
}
