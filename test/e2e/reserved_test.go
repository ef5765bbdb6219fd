package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// TestReservedPods follows pods from their reservation to the node.
func TestReservedPods(t *testing.T) {
	c := newServedCluster(t, 3)
	tests := map[string]func(*cluster, *corev1.Pod){
		"bound by its scheduler, it is counted once": func(c *cluster, pod *corev1.Pod) {
			require.NoError(c.T, c.BindDirectly(pod.Name, "node-0"))
			c.requireUsed("node-0", reserver.NodeAmount{Allocatable: 4000, Bound: 3000, Free: 1000})
		},
		"bound by the server, it is counted once": func(c *cluster, pod *corev1.Pod) {
			require.Empty(c.T, c.Bind(pod, "node-0"))
			c.requireUsed("node-0", reserver.NodeAmount{Allocatable: 4000, Bound: 3000, Free: 1000})
		},
		"bound elsewhere, it gives its reservation back": func(c *cluster, pod *corev1.Pod) {
			require.NoError(c.T, c.BindDirectly(pod.Name, "node-1"))
			c.requireUsed("node-0", reserver.NodeAmount{Allocatable: 4000, Free: 4000})
			c.requireUsed("node-1", reserver.NodeAmount{Allocatable: 4000, Bound: 3000, Free: 1000})
		},
		"deleted before it is bound, it gives its reservation back": func(c *cluster, pod *corev1.Pod) {
			c.Delete(pod.Name)
			c.requireUsed("node-0", reserver.NodeAmount{Allocatable: 4000, Free: 4000})
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			c.clear()
			pod := c.CreatePod("worker", nobody, "3")
			reserved := gangOf([]*corev1.Pod{pod}, "node-0")
			reserved.TTLSeconds = 3600
			require.True(t, c.Reserve(reserved).Granted())
			c.requireUsed("node-0", reserver.NodeAmount{Allocatable: 4000, Reserved: 3000, Free: 1000})
			test(c, pod)
		})
	}
	require.Equal(t, 1, c.Metric("globalreserve_bypassed_binds_total"),
		"only the pod that is elsewhere has bypassed the server")
}

// requireUsed waits until the server has this account of a node's CPU.
func (c *cluster) requireUsed(node string, cpu reserver.NodeAmount) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, cpu, c.CPU(node))
	})
}
