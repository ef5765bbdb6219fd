package election

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The server that decides is killed while a kube-scheduler asks the other one for more than fits, which passes on what
// it is asked until it decides itself, when the Lease is over: no node is overcommitted, all that fits is bound, and a
// gang that was acknowledged has its capacity.
func TestKilledLeader(t *testing.T) {
	const nodes, gangCPUs = 6, 4
	c := newCluster(t, shared.StartT(t), nodes)
	leader := c.start("leader", nil)
	c.awaitLeader(leader)
	next := c.start("next", nil)
	c.Ledger = next.Caller
	c.Eventually(func(t *assert.CollectT) {
		assert.NoError(t, controlplane.HTTPReady(next.URL+"/readyz", nil)(c.T.Context()))
	})
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

// Of two servers that take no part in an election the one that started first has the earlier term, and ends itself as
// soon as it learns of the later one.
func TestTwoServersWithoutAnElection(t *testing.T) {
	c := newCluster(t, shared.StartT(t), 1)
	pod := c.Create(testbed.NewPod("pod", nobody, "3"))[0]
	alone := func(name string) *testbed.Server {
		o := clusterload.ServerOptions{Name: name, Args: []string{"--leader-elect=false"}}
		return testbed.StartServer(t, c.ControlPlane, o)
	}
	first, second := alone("first"), alone("second")
	c.Eventually(func(t *assert.CollectT) { assert.False(t, first.Running()) })
	refusal, err := bindAt(t.Context(), second, pod, c.nodes[0])
	require.NoError(t, err)
	assert.Empty(t, refusal)
	c.RequireNeverOvercommitted()
}
