package election

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The server that decides is killed while a kube-scheduler asks for more than fits. Another one goes on when the Lease is
// over: no node is overcommitted, all that fits is bound, and a gang that was acknowledged has its capacity.
func TestKilledLeader(t *testing.T) {
	const nodes, gangCPUs = 6, 4
	c := newCluster(t, shared.StartT(t), nodes)
	one, two := c.start("one", nil), c.start("two", nil)
	c.Ledger.URL = "http://" + newService(t, []backend{{host(one.URL), one.URL}, {host(two.URL), two.URL}}).address()
	c.Eventually(func(t *assert.CollectT) { // either of them may be asked
		assert.NoError(t, controlplane.HTTPReady(one.URL+"/readyz", nil)(c.T.Context()))
		assert.NoError(t, controlplane.HTTPReady(two.URL+"/readyz", nil)(c.T.Context()))
	})
	leader, next := c.leader(), one
	if leader == one {
		next = two
	}
	gang := c.Create(testbed.NewPods(2, "gang", nobody, "2")...)
	answer := c.Reserve(&reserver.Request{SchedulerName: nobody, Pods: gang, Nodes: c.nodes[:2], TTLSeconds: 3600})
	require.Empty(t, answer.Error)
	require.True(t, answer.Durable)

	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	c.Create(testbed.NewPods(nodes*4, "pod", "default-scheduler", "1")...)
	bound := func() int { return len(testbed.Bound(c.Pods())) }
	c.Eventually(func(t *assert.CollectT) { assert.Greater(t, bound(), 5) })
	require.NoError(t, leader.Kill())
	c.awaitLeader(next)
	c.Eventually(func(t *assert.CollectT) { assert.Equal(t, nodes*4-gangCPUs, bound()) })
	for i, pod := range gang {
		require.Empty(t, c.Bind(pod, c.nodes[i]))
	}
	c.RequireNeverOvercommitted()
}
