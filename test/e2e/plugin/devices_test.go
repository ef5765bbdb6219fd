package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

func (c *cluster) createDevice(name, node, model string) {
	c.t.Helper()
	_, err := c.reservations.GlobalreserveV1alpha1().ExtendedResources().Create(c.t.Context(), &v1alpha1.ExtendedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ExtendedResourceSpec{
			NodeName: node, ResourceName: "nvidia.com/gpu", DeviceID: "GPU-" + name, Properties: map[string]string{"model": model},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func (c *cluster) createClaim(name, model string) {
	c.t.Helper()
	_, err := c.reservations.GlobalreserveV1alpha1().ExtendedResourceClaims(namespace).Create(c.t.Context(), &v1alpha1.ExtendedResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ExtendedResourceClaimSpec{
			ResourceName: "nvidia.com/gpu", Count: 1, Selector: &v1alpha1.DeviceSelector{MatchProperties: map[string]string{"model": model}},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func claiming(claims string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: claims}
	}
}

func (c *cluster) given(name string) string {
	c.t.Helper()
	return c.pod(name).Annotations[v1alpha1.ExtendedResourcesAnnotation]
}

// TestPodsWithClaims has the plugin place pods that claim devices.
func TestPodsWithClaims(t *testing.T) {
	eachMode(t, setup{nodes: 3, cpu: "4"}, func(t *testing.T, c *cluster) {
		c.createDevice("k80", c.nodes[1], "K80")
		c.createDevice("p100", c.nodes[2], "P100")
		c.createClaim("k80-erc", "K80")
		c.createClaim("other-erc", "K80")
		c.create(newPod("first", "1", claiming("k80-erc")))
		require.Equal(t, c.nodes[1], c.bound("first"))
		require.Equal(t, "GPU-k80", c.given("first"))

		c.create(newPod("second", "1", claiming("k80-erc")))
		require.Contains(t, c.refused("second"), "GlobalReserve: another pod has a device claim of the pod")
		c.create(newPod("third", "1", claiming("other-erc")))
		require.Contains(t, c.refused("third"), "GlobalReserve: the free devices of the node do not meet the pod's claims")
		c.create(newPod("fourth", "1", claiming("late-erc")))
		require.Contains(t, c.refused("fourth"), "GlobalReserve: a device claim of the pod cannot be used")

		started := time.Now()
		c.createClaim("late-erc", "P100")
		require.Equal(t, c.nodes[2], c.bound("fourth"))
		require.Equal(t, "GPU-p100", c.given("fourth"))
		t.Logf("bound %s after its claim was created", time.Since(started).Round(time.Millisecond))

		started = time.Now()
		c.delete("first")
		require.Eventually(t, func() bool { return c.pod("second").Spec.NodeName+c.pod("third").Spec.NodeName != "" }, soon, poll)
		t.Logf("bound %s after the device was free", time.Since(started).Round(time.Millisecond))
		one, other := c.given("second"), c.given("third")
		assert.ElementsMatch(t, []string{"GPU-k80", ""}, []string{one, other}, "the device has one pod")

		waiting := map[bool]string{true: "third", false: "second"}[one != ""]
		c.createDevice("a100", c.nodes[0], "A100")
		c.createClaim("a100-erc", "A100")
		started = time.Now()
		pod := c.pod(waiting)
		pod.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation] = "a100-erc"
		_, err := c.Client().CoreV1().Pods(namespace).Update(t.Context(), pod, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.Equal(t, c.nodes[0], c.bound(waiting))
		require.Equal(t, "GPU-a100", c.given(waiting))
		t.Logf("bound %s after it named another claim", time.Since(started).Round(time.Millisecond))
	})
}
