//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestPodChangesUnderItsBind changes a pod that was decided on, while its Binding is on the way to the API server.
func TestPodChangesUnderItsBind(t *testing.T) {
	c, _ := newProxiedCluster(t, 1)
	c.Create(testbed.NewPod("other", nobody, "2"))
	require.Empty(t, c.Bind(c.Pod("other"), "node-0"))
	c.run("it asks for more", func(c *cluster) {
		pod := c.CreatePod("grows", nobody, "2")
		refusal := c.BindHeld(pod, "node-0", func() {
			c.patchPod("grows", `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"3"}}}]}}`, "resize")
		})
		require.Contains(c.T, refusal, "it has changed")
		require.Contains(c.T, c.Bind(pod, "node-0"), "requested 3 CPU, 2 free")
		require.Empty(c.T, c.Pod("grows").Spec.NodeName)
	})
	c.run("it has another condition", func(c *cluster) {
		pod := c.CreatePod("tried", nobody, "2")
		require.Empty(c.T, c.BindHeld(pod, "node-0", func() {
			c.patchPod("tried", `{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}}`,
				"status")
		}))
		require.Equal(c.T, "node-0", c.Pod("tried").Spec.NodeName)
	})
	c.RequireNeverOvercommitted()
	c.requireAgreement()
	c.requireNoDriftSeen()
}

func (c *cluster) patchPod(name, patch, subresource string) {
	c.T.Helper()
	_, err := c.Client().CoreV1().Pods(c.Namespace).Patch(c.T.Context(), name, types.StrategicMergePatchType,
		[]byte(patch),
		metav1.PatchOptions{}, subresource)
	require.NoError(c.T, err)
}
