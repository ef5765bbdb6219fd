package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestBindRefusals asks for binds that must not happen.
func TestBindRefusals(t *testing.T) {
	c := newServedCluster(t, 3)
	taken := c.CreatePod("taken", nobody, "3")
	require.Empty(t, c.Bind(taken, "node-0"))
	tests := map[string]func(c *cluster) (pod *corev1.Pod, node, says string){
		"the node is full": func(c *cluster) (*corev1.Pod, string, string) {
			return c.CreatePod("too-large", nobody, "2"), "node-0", "cpu"
		},
		"the node does not exist": func(c *cluster) (*corev1.Pod, string, string) {
			return c.CreatePod("nowhere", nobody, "1"), "no-such-node", "no-such-node"
		},
		"the pod has another UID": func(c *cluster) (*corev1.Pod, string, string) {
			pod := c.CreatePod("reborn", nobody, "1")
			pod.UID = "00000000-0000-0000-0000-000000000000"
			return pod, "node-1", "UID"
		},
		"the pod was deleted": func(c *cluster) (*corev1.Pod, string, string) {
			pod := c.CreatePod("deleted", nobody, "1")
			c.Delete(pod.Name)
			return pod, "node-1", "deleted"
		},
		"the pod was deleted and created again": func(c *cluster) (*corev1.Pod, string, string) {
			pod := c.CreatePod("again", nobody, "1")
			c.Delete(pod.Name)
			c.Create(testbed.NewPod("again", nobody, "1"))
			return pod, "node-1", "again"
		},
		"the pod is elsewhere already": func(*cluster) (*corev1.Pod, string, string) {
			return taken, "node-1", "node-0"
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			pod, node, says := test(c)
			before := c.Metric("globalreserve_decisions_total", "verb", "bind")
			require.Contains(t, c.Bind(pod, node), says)
			require.Greater(t, c.Metric("globalreserve_decisions_total", "verb", "bind"), before)
			c.requireAgreement()
		})
	}
	require.Equal(t, "taken", c.AwaitRefusal("path=bind&pod=too-large").Rejection.Holders[0].Pod)
	require.NotEmpty(t, c.Reserve(gangOf([]*corev1.Pod{c.CreatePod("one-more", nobody, "2")}, "node-0")).Error)
	require.Equal(t, "taken", c.AwaitRefusal("path=reserve&pod=one-more").Rejection.Holders[0].Pod)
	require.Empty(t, c.Bind(taken, "node-0"), "the same bind again is a success")
	c.RequireNeverOvercommitted()
}
