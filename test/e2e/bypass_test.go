package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// TestBypassedBinds binds pods past the server until a node is overcommitted. The server cannot
// prevent that; it has to say so, and to grant nothing more there until room is back.
func TestBypassedBinds(t *testing.T) {
	c := newServedCluster(t, 2)
	pods := c.create(newPods(3, "stranger", nobody, "2")...)
	for i, pod := range pods {
		c.bindDirectly(pod, "node-0")
		eventually(t, soon, func(t *assert.CollectT) {
			metrics := c.scrape(t)
			assert.Equal(t, i+1, int(metrics.Sum("globalreserve_bypassed_binds_total", "scheduler", nobody)))
			assert.Equal(t, max(0, i-1), int(metrics.Sum("globalreserve_overcommitted_nodes")))
		})
	}
	require.NotEmpty(t, c.watcher.Violations(), "the API server shows it too")
	require.Equal(t, []string{"node-0"}, c.overcommitted())

	asking := c.create(newPod("asking", nobody, "100m"))[0]
	require.NotEmpty(t, c.bind(t, asking, "node-0"), "a node that has too much already gets no more")
	require.NotEmpty(t, c.reserve(t, groupOf([]*corev1.Pod{asking}, "node-0")).Error)

	c.delete(pods[0])
	eventually(t, soon, func(t *assert.CollectT) {
		assert.Zero(t, c.metric(t, "globalreserve_overcommitted_nodes"))
	})
	require.Empty(t, c.overcommitted())
	require.NotEmpty(t, c.bind(t, asking, "node-0"), "it is full")
	c.delete(pods[1])
	eventually(t, soon, func(t *assert.CollectT) {
		assert.Empty(t, c.bind(t, asking, "node-0"), "there is room again")
	})
	c.requireAgreement()
	c.requireNoDriftSeen()
}

// overcommitted returns the nodes that the server calls overcommitted.
func (c *cluster) overcommitted() []string {
	c.t.Helper()
	var answer reserver.NodesAnswer
	c.call(c.t, http.MethodGet, "/v1/nodes?overcommitted=true", nil, &answer)
	var names []string
	for _, node := range answer.Nodes {
		require.True(c.t, node.Overcommitted)
		names = append(names, node.Name)
	}
	return names
}

// TestBypassedBindsOfOneScheduler names the scheduler that is not behind the server.
func TestBypassedBindsOfOneScheduler(t *testing.T) {
	c := newServedCluster(t, 3)
	c.startScheduler("default-scheduler", "default-scheduler.yaml")
	require.NoError(t, c.StartScheduler(t.Context(), "rogue", nil))
	c.create(newPods(5, "good", "default-scheduler", "100m")...)
	c.create(newPods(4, "rogue", "rogue", "100m")...)
	require.Equal(t, 9, c.awaitSettled(late).Bound)
	c.requireAgreement()
	metrics := c.scrape(t)
	require.Equal(t, 4, int(metrics.Sum("globalreserve_bypassed_binds_total", "scheduler", "rogue")))
	require.Equal(t, 4, int(metrics.Sum("globalreserve_bypassed_binds_total")))
}
