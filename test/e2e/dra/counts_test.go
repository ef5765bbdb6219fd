//go:build e2e

package dra

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestCountsOfMappedResources has pods ask by count for what a DeviceClass maps to devices, by the name that the class
// gives and by the class's own: nobody has named these to the server or a scheduler, and they are given devices.
func TestCountsOfMappedResources(t *testing.T) {
	const scheduler = "extended-resource-scheduler"
	c := newCluster(t, 2, 1)
	c.startWebhook()
	c.StartKubeScheduler(scheduler, "extended-resource-scheduler.yaml")
	asking := func(name, of string) *corev1.Pod {
		return testbed.NewPod(name, scheduler, "100m", func(pod *corev1.Pod) {
			one := resource.MustParse("1")
			resources := &pod.Spec.Containers[0].Resources
			resources.Requests[corev1.ResourceName(of)] = one
			resources.Limits = corev1.ResourceList{corev1.ResourceName(of): one}
		})
	}
	c.Create(asking("implicit", "deviceclass.resource.kubernetes.io/"+class))
	c.AwaitBound("implicit")
	c.Create(asking("explicit", "example.com/gpu"))
	c.AwaitRefused("explicit")
	c.mapClass("example.com/gpu")
	c.AwaitBound("explicit")
	c.Create(asking("third", "example.com/gpu"), asking("unmapped", "example.com/other"))
	c.AwaitRefused("third")
	c.AwaitRefused("unmapped")

	bound := testbed.Bound(c.Pods())
	require.Len(t, bound, 2, "as many as there are devices")
	assert.NotEqual(t, bound[0].Spec.NodeName, bound[1].Spec.NodeName)
	claims := c.allocated()
	require.Len(t, claims, 2)
	owners := []string{claims[0].OwnerReferences[0].Name, claims[1].OwnerReferences[0].Name}
	slices.Sort(owners)
	assert.Equal(t, []string{"explicit", "implicit"}, owners)
	require.Zero(t, c.Metric("globalreserve_dra_double_devices"))

	c.CreateReservation("ahead", `{ttl: 10m, slots: [{name: a, requests: {cpu: 1, example.com/later: 1}}]}`)
	c.AwaitReservation("ahead", v1alpha1.ReservationPending)
	c.mapClass("example.com/later")
	c.Eventually(func(t *assert.CollectT) {
		conditions := c.AwaitReservation("ahead", v1alpha1.ReservationPending).Status.Conditions
		assert.Contains(t, conditions[0].Message, "where DRA gives example.com/later, whose devices are kept for no pod")
	})
}

// mapClass has the class map an extended resource.
func (c *cluster) mapClass(resource string) {
	c.T.Helper()
	_, err := c.Client().ResourceV1().DeviceClasses().Patch(c.T.Context(), class, types.MergePatchType,
		[]byte(`{"spec":{"extendedResourceName":"`+resource+`"}}`), metav1.PatchOptions{})
	require.NoError(c.T, err)
}
