package devices

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// TestLife is what becomes of claims and devices when what they rest on goes.
func TestLife(t *testing.T) {
	c := newCluster(t, setup{nodes: 3})
	c.StartKubeScheduler(scheduler, "extended-resource-scheduler.yaml")
	for name, test := range map[string]func(*cluster){
		"a device is deleted under a claim":  deviceDeleted,
		"the annotation of a pod is changed": annotationChanged,
		"the pod finishes":                   podFinished,
		"a device is taken out of service":   deviceCordoned,
		"devices by name":                    exactDevices,
	} {
		t.Run(name, func(t *testing.T) { test(c.in(t)) })
	}
}

// run has a pod with a claim bound, and returns it.
func (c *cluster) run(name, claim string) *corev1.Pod {
	c.T.Helper()
	c.create(name, scheduler, claim)
	pod, _ := c.AwaitBound(name)
	c.awaitClaim(claim, v1alpha1.ExtendedResourceClaimBound)
	return pod
}

func deviceDeleted(c *cluster) {
	c.CreateDevice("lost", "node-0", "lost")
	c.CreateDeviceClaim("loses", "lost", 1)
	c.run("loser", "loses")
	require.NoError(c.T, c.Devices().Delete(c.T.Context(), "lost", metav1.DeleteOptions{}))
	claim := c.awaitClaim("loses", v1alpha1.ExtendedResourceClaimLost)
	require.Equal(c.T, "DeviceDeleted", claim.Status.Conditions[0].Reason)
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

// patchPod changes a pod as it is now, or its status.
func (c *cluster) patchPod(name, patch string, subresources ...string) {
	c.T.Helper()
	_, err := c.Client().CoreV1().Pods(namespace).Patch(c.T.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...)
	require.NoError(c.T, err)
}

// annotationChanged has somebody take from a pod what says which devices it has.
func annotationChanged(c *cluster) {
	c.CreateDevice("told", "node-0", "told")
	c.CreateDeviceClaim("told", "told", 1)
	c.run("told", "told")
	c.patchPod("told", `{"metadata":{"annotations":{"`+v1alpha1.ExtendedResourcesAnnotation+`":null}}}`)
	c.Eventually(func(t *assert.CollectT) { assert.Equal(t, "GPU-told", given(c.Pod("told"))) })
	c.Delete("told")
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

func deviceCordoned(c *cluster) {
	c.CreateDevice("resting", "node-1", "resting")
	c.CreateDeviceClaim("first", "resting", 1)
	c.CreateDeviceClaim("second", "resting", 1)
	c.run("first", "first")
	cordon := func(to string) {
		_, err := c.Devices().Patch(c.T.Context(), "resting", types.MergePatchType,
			[]byte(`{"spec":{"unschedulable":`+to+`}}`), metav1.PatchOptions{})
		require.NoError(c.T, err)
	}
	cordon("true")
	c.create("second", scheduler, "second")
	c.AwaitRefused("second")
	c.Delete("first")
	c.awaitDevice("resting", v1alpha1.ExtendedResourceAvailable)
	require.Empty(c.T, c.Pod("second").Spec.NodeName)
	started := time.Now()
	cordon("null")
	_, at := c.AwaitBound("second")
	c.T.Logf("bound %s after its device was back in service", at.Sub(started).Round(time.Millisecond))
	c.Delete("second")
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

func (c *cluster) requireAvailable(names ...string) {
	c.T.Helper()
	for _, name := range names {
		c.awaitDevice(name, v1alpha1.ExtendedResourceAvailable)
	}
}
