//go:build e2e

package plugin

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

func claiming(claims string) func(*corev1.Pod) {
	return testbed.Annotated(v1alpha1.ExtendedResourceClaimsAnnotation, claims)
}

func (c *cluster) given(name string) string {
	c.T.Helper()
	return c.Pod(name).Annotations[v1alpha1.ExtendedResourcesAnnotation]
}

// The plugin places pods that claim devices, and wakes those that it refused when a claim is made, a device is free, or
// a pod names another claim.
func TestPodsWithClaims(t *testing.T) {
	c := newCluster(t, setup{nodes: 3, cpu: "4"})
	c.CreateDevice("k80", c.nodes[1], "K80")
	c.CreateDevice("p100", c.nodes[2], "P100")
	c.CreateDeviceClaim("k80-erc", "K80", 1)
	c.CreateDeviceClaim("other-erc", "K80", 1)
	c.create("first", "1", claiming("k80-erc"))
	require.Equal(t, c.nodes[1], c.bound("first"))
	require.Equal(t, "GPU-k80", c.given("first"))

	c.create("second", "1", claiming("other-erc"))
	require.Contains(t, c.AwaitRefused("second"), "the free devices of the node do not meet the pod's claims")
	c.create("third", "1", claiming("late-erc"))
	require.Contains(t, c.AwaitRefused("third"), "GlobalReserve: a device claim of the pod cannot be used")
	c.CreateDeviceClaim("late-erc", "P100", 1)
	require.Equal(t, c.nodes[2], c.bound("third"))
	require.Equal(t, "GPU-p100", c.given("third"))
	c.Delete("first")
	require.Equal(t, c.nodes[1], c.bound("second"))
	require.Equal(t, "GPU-k80", c.given("second"))

	c.create("fourth", "1", claiming("other-erc"))
	require.Contains(t, c.AwaitRefused("fourth"), "GlobalReserve: another pod has a device claim of the pod")
	c.CreateDevice("a100", c.nodes[0], "A100")
	c.CreateDeviceClaim("a100-erc", "A100", 1)
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: "a100-erc"}}}`, v1alpha1.ExtendedResourceClaimsAnnotation)
	_, err := c.Client().CoreV1().Pods(testbed.Namespace).Patch(t.Context(), "fourth", types.MergePatchType, patch,
		metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, c.nodes[0], c.bound("fourth"))
	require.Equal(t, "GPU-a100", c.given("fourth"))
}
