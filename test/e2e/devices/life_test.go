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
)

// TestLife is what becomes of claims and devices when what they rest on goes.
func TestLife(t *testing.T) {
	c := newCluster(t, setup{nodes: 3})
	c.startScheduler(scheduler)
	for name, test := range map[string]func(*cluster){
		"a device is deleted under a claim":     deviceDeleted,
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
	c.t.Helper()
	c.create(newPod(name, scheduler, claims))
	pod, _ := c.awaitBound(name)
	for _, claim := range split(claims) {
		c.awaitClaim(claim, v1alpha1.ExtendedResourceClaimBound)
	}
	return pod
}

func (c *cluster) deleteDevice(name string) {
	c.t.Helper()
	require.NoError(c.t, c.devices().Delete(c.t.Context(), name, metav1.DeleteOptions{}))
}

func (c *cluster) deleteClaim(name string) {
	c.t.Helper()
	require.NoError(c.t, c.claims().Delete(c.t.Context(), name, metav1.DeleteOptions{}))
}

func condition(conditions []metav1.Condition) string { return conditions[0].Reason }

func deviceDeleted(c *cluster) {
	c.createDevice("lost", "node-0", "lost")
	c.createClaim("loses", "lost", 1)
	c.run("loser", "loses")
	c.deleteDevice("lost")
	claim := c.awaitClaim("loses", v1alpha1.ExtendedResourceClaimLost)
	require.Equal(c.t, "DeviceDeleted", condition(claim.Status.Conditions))
	require.Equal(c.t, "loser", claim.Status.PodRef.Name)
	c.awaitEvent("ExtendedResourceClaim", "loses", "DeviceDeleted", "GPU-lost")

	// Its ID is still with the pod: the device that comes back under another name is not given out again.
	again := newDevice("found", "node-0", "lost")
	again.Spec.DeviceID = "GPU-lost"
	_, err := c.devices().Create(c.t.Context(), again, metav1.CreateOptions{})
	require.NoError(c.t, err)
	c.awaitDevice("found", v1alpha1.ExtendedResourceBound)
	claim = c.awaitClaim("loses", v1alpha1.ExtendedResourceClaimBound)
	require.Equal(c.t, []string{"found"}, claim.Status.ExtendedResources)
	c.deletePod("loser")
	c.awaitDevice("found", v1alpha1.ExtendedResourceAvailable)
}

func nodeGone(c *cluster) {
	c.createDevice("away", "node-2", "away")
	c.createClaim("stays", "away", 1)
	c.run("stayer", "stays")
	require.NoError(c.t, c.Client().CoreV1().Nodes().Delete(c.t.Context(), "node-2", metav1.DeleteOptions{}))
	device := c.awaitDevice("away", v1alpha1.ExtendedResourceOffline)
	require.Equal(c.t, "NodeGone", condition(device.Status.Conditions))
	c.awaitEvent("ExtendedResource", "away", "NodeGone", "node-2")

	c.createClaim("comes-late", "away", 1)
	c.create(newPod("latecomer", scheduler, "comes-late"))
	c.awaitRefused("latecomer")
	c.deletePod("stayer") // its node is gone, and somebody takes it away
	c.awaitClaim("stays", v1alpha1.ExtendedResourceClaimPending)
	c.awaitDevice("away", v1alpha1.ExtendedResourceOffline)
	require.Empty(c.t, c.pod("latecomer").Spec.NodeName)
	c.deletePod("latecomer")
}

func claimDeleted(c *cluster) {
	c.createDevice("kept", "node-0", "kept")
	c.createClaim("goes", "kept", 1)
	c.run("user", "goes")
	c.deleteClaim("goes")
	c.createClaim("other", "kept", 1)
	c.create(newPod("other", scheduler, "other"))
	c.awaitRefused("other")
	claim := c.awaitClaim("goes", v1alpha1.ExtendedResourceClaimBound)
	require.NotNil(c.t, claim.DeletionTimestamp)
	require.Equal(c.t, []string{v1alpha1.ExtendedResourceClaimFinalizer}, claim.Finalizers)
	device := c.awaitDevice("kept", v1alpha1.ExtendedResourceBound)
	require.Equal(c.t, claim.UID, device.Status.ClaimRef.UID)
	controlplane.Never(c.t, func() bool {
		_, err := c.claims().Get(c.t.Context(), "goes", metav1.GetOptions{})
		return err != nil || c.pod("other").Spec.NodeName != ""
	}, never, poll, "the device is counted until the pod goes")

	started := time.Now()
	c.deletePod("user")
	pod, at := c.awaitBound("other")
	require.Equal(c.t, "GPU-kept", given(pod))
	c.t.Logf("the device of a deleted claim was with the next pod %s after the first was deleted", at.Sub(started).Round(time.Millisecond))
	c.eventually(func(t *assert.CollectT) {
		_, err := c.claims().Get(c.t.Context(), "goes", metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), "the claim is still there: %v", err)
	})
	c.deletePod("other")
}

func podFinished(c *cluster) {
	c.createDevice("once", "node-0", "once")
	c.createClaim("used-up", "once", 1)
	c.run("worker", "used-up")
	_, err := c.Client().CoreV1().Pods(namespace).Patch(c.t.Context(), "worker", types.MergePatchType,
		[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	require.NoError(c.t, err)
	claim := c.awaitClaim("used-up", v1alpha1.ExtendedResourceClaimPending)
	require.Nil(c.t, claim.Status.PodRef)
	c.awaitDevice("once", v1alpha1.ExtendedResourceAvailable)
	next := c.run("worker-again", "used-up")
	require.Equal(c.t, "GPU-once", given(next))
	c.deletePod("worker")
	c.awaitDevice("once", v1alpha1.ExtendedResourceBound)
	c.deletePod("worker-again")
}

func statusWritten(c *cluster) {
	c.createDevice("drifts", "node-0", "drifts")
	c.createClaim("drifts", "drifts", 1)
	c.run("drifter", "drifts")
	claim := c.awaitClaim("drifts", v1alpha1.ExtendedResourceClaimBound)
	device := c.awaitDevice("drifts", v1alpha1.ExtendedResourceBound)
	wantClaim, wantDevice := claim.DeepCopy().Status, device.DeepCopy().Status

	_, err := c.claims().Patch(c.t.Context(), "drifts", types.MergePatchType,
		[]byte(`{"status":{"phase":"Pending","podRef":null,"extendedResources":null,"conditions":null}}`), metav1.PatchOptions{}, "status")
	require.NoError(c.t, err)
	c.forgeStatus("drifts")

	claim = c.awaitClaim("drifts", v1alpha1.ExtendedResourceClaimBound)
	device = c.awaitDevice("drifts", v1alpha1.ExtendedResourceBound)
	require.Equal(c.t, wantClaim.PodRef, claim.Status.PodRef)
	require.Equal(c.t, wantClaim.ExtendedResources, claim.Status.ExtendedResources)
	require.Equal(c.t, wantDevice.ClaimRef, device.Status.ClaimRef)
	c.createClaim("drifts-too", "drifts", 1)
	require.Equal(c.t, map[string]string{"node-0": "GlobalReserve: the free devices of the node do not meet the pod's claims"}, c.refusal("drifts-too", "node-0"),
		"what the status says decides nothing")
	c.deletePod("drifter")
}

// refusal is why filter refuses nodes to a pod with a claim.
func (c *cluster) refusal(claim string, nodes ...string) map[string]string {
	c.t.Helper()
	pod := newPod("asks-"+claim, "nobody", claim)
	var reasons map[string]string
	c.eventually(func(t *assert.CollectT) {
		claim, err := c.claims().Get(c.t.Context(), claim, metav1.GetOptions{})
		require.NoError(t, err)
		assert.NotEmpty(t, claim.Status.Phase, "the server has not seen it yet")
	})
	reasons = c.filter(c.create(pod), nodes...)
	c.deletePod(pod.Name)
	return reasons
}

func deviceCordoned(c *cluster) {
	c.createDevice("resting", "node-1", "resting")
	c.createClaim("first", "resting", 1)
	c.createClaim("second", "resting", 1)
	c.run("first", "first")
	c.patchDevice("resting", `{"spec":{"unschedulable":true}}`)
	c.create(newPod("second", scheduler, "second"))
	c.awaitRefused("second")
	c.deletePod("first")
	c.awaitDevice("resting", v1alpha1.ExtendedResourceAvailable)
	require.Empty(c.t, c.pod("second").Spec.NodeName)
	started := time.Now()
	c.patchDevice("resting", `{"spec":{"unschedulable":null}}`)
	_, at := c.awaitBound("second")
	c.t.Logf("bound %s after its device was back in service", at.Sub(started).Round(time.Millisecond))
	c.deletePod("second")
}

func severalClaims(c *cluster) {
	c.createDevice("a0", "node-0", "several")
	c.createDevice("b0", "node-1", "several")
	c.createDevice("b1", "node-1", "several")
	c.createDevice("b2", "node-1", "other")
	c.createClaim("pair", "several", 2)
	c.createClaim("single", "other", 1)
	pod := c.run("several", "single,pair")
	require.Equal(c.t, "node-1", pod.Spec.NodeName, "the only node with all of them")
	require.Equal(c.t, "GPU-b2,GPU-b0,GPU-b1", given(pod), "in the order of the claims")
	require.Equal(c.t, []string{"b0", "b1"}, c.awaitClaim("pair", v1alpha1.ExtendedResourceClaimBound).Status.ExtendedResources)
	c.deletePod("several")
	c.requireAvailable("a0", "b0", "b1", "b2")
}

func exactDevices(c *cluster) {
	for _, name := range []string{"exact-0", "exact-1", "exact-2", "exact-3"} {
		c.createDevice(name, "node-0", "exact")
	}
	claim := newClaim("exact", "exact", 2)
	claim.Spec.ExtendedResourceNames = []string{"exact-3", "exact-2"}
	_, err := c.claims().Create(c.t.Context(), claim, metav1.CreateOptions{})
	require.NoError(c.t, err)
	require.Equal(c.t, "GPU-exact-2,GPU-exact-3", given(c.run("exact", "exact")))
	rival := newClaim("exact-too", "exact", 1)
	rival.Spec.ExtendedResourceNames = []string{"exact-3"}
	_, err = c.claims().Create(c.t.Context(), rival, metav1.CreateOptions{})
	require.NoError(c.t, err)
	c.create(newPod("exact-too", scheduler, "exact-too"))
	c.awaitRefused("exact-too")
	c.deletePod("exact")
	pod, _ := c.awaitBound("exact-too")
	require.Equal(c.t, "GPU-exact-3", given(pod))
	c.deletePod("exact-too")
}

// annotationChanged has somebody write another device, nonsense and nothing to a pod that is bound: it keeps what it
// was given, and is told so again, and what was written is given to whom it is due.
func annotationChanged(c *cluster) {
	c.createDevice("mine", "node-0", "changed")
	c.createDevice("theirs", "node-0", "changed")
	c.createClaim("changed", "changed", 1)
	c.createClaim("changed-too", "changed", 1)
	was := given(c.run("changed", "changed"))
	other := map[string]string{"GPU-mine": "theirs", "GPU-theirs": "mine"}[was]
	annotate := func(key, value string) {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, value)
		_, err := c.Client().CoreV1().Pods(namespace).Patch(c.t.Context(), "changed", types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(c.t, err)
	}
	for key, values := range map[string][]string{
		v1alpha1.ExtendedResourcesAnnotation:      {`"GPU-` + other + `"`, `"GPU-none"`, `"no,,list"`, "null"},
		v1alpha1.ExtendedResourceClaimsAnnotation: {`"changed-too"`, `"no,,list"`, "null"},
	} {
		for _, value := range values {
			annotate(key, value)
			c.eventually(func(t *assert.CollectT) {
				pod, err := c.Client().CoreV1().Pods(namespace).Get(c.t.Context(), "changed", metav1.GetOptions{})
				require.NoError(t, err)
				assert.Equal(t, was, given(pod), "%s: %s", key, value)
				assert.Equal(t, "changed", pod.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation], "%s: %s", key, value)
			})
			c.awaitClaim("changed", v1alpha1.ExtendedResourceClaimBound)
			c.awaitDevice(other, v1alpha1.ExtendedResourceAvailable)
		}
	}
	require.Equal(c.t, "GPU-"+other, given(c.run("changed-too", "changed-too")))
	c.deletePod("changed")
	c.deletePod("changed-too")
}

func (c *cluster) requireAvailable(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.awaitDevice(name, v1alpha1.ExtendedResourceAvailable)
	}
}
