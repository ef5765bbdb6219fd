//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestBypassedBinds binds pods past the server until a node is overcommitted. The server cannot
// prevent that; it has to say so, and to grant nothing more there until capacity is back.
func TestBypassedBinds(t *testing.T) {
	c := newServedCluster(t, 2)
	pods := c.Create(testbed.NewPods(3, "stranger", nobody, "2")...)
	for i, pod := range pods {
		require.NoError(c.T, c.BindDirectly(pod.Name, "node-0"))
		c.Eventually(func(t *assert.CollectT) {
			metrics := c.Scrape()
			assert.Equal(t, i+1, int(metrics.Sum("globalreserve_bypassed_binds_total", "scheduler", nobody)))
			assert.Equal(t, max(0, i-1), int(metrics.Sum("globalreserve_overcommitted_nodes")))
		})
	}
	c.CatchUp()
	require.NotEmpty(t, c.Watcher.Violations(), "the API server shows it too")
	require.Equal(t, []string{"node-0"}, c.overcommitted())

	asking := c.CreatePod("asking", nobody, "100m")
	require.NotEmpty(t, c.Bind(asking, "node-0"), "a node that has too much already gets no more")
	require.NotEmpty(t, c.Reserve(gangOf([]*corev1.Pod{asking}, "node-0")).Error)

	c.Delete(pods[0].Name)
	c.Eventually(func(t *assert.CollectT) {
		assert.Zero(t, c.Metric("globalreserve_overcommitted_nodes"))
	})
	require.Empty(t, c.overcommitted())
	require.NotEmpty(t, c.Bind(asking, "node-0"), "it is full")
	c.Delete(pods[1].Name)
	c.Eventually(func(t *assert.CollectT) {
		assert.Empty(t, c.Bind(asking, "node-0"), "there is capacity again")
	})
	c.requireAgreement()
	c.requireNoDriftSeen()
}

// overcommitted returns the nodes that the server calls overcommitted.
func (c *cluster) overcommitted() []string {
	c.T.Helper()
	var answer reserver.NodesAnswer
	require.NoError(c.T, c.Ledger.Get(c.T.Context(), testbed.NodesPath+"?overcommitted=true", &answer))
	var names []string
	for _, node := range answer.Nodes {
		require.True(c.T, node.Overcommitted)
		names = append(names, node.Name)
	}
	return names
}
