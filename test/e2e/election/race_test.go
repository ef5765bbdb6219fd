package election

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// Two servers without any flags, and behind each a kube-scheduler: together the schedulers ask for more than there is,
// and no node is ever overcommitted. What the server that stands by is asked it passes on, until it decides itself.
func TestTwoServersRace(t *testing.T) {
	const nodes, pods, fitting = 50, 260, 200
	c := newCluster(t, shared.StartT(t), nodes)
	first, err := clusterload.StartServer(t.Context(), c.ControlPlane, clusterload.ServerOptions{Name: "first"})
	require.NoError(t, err)
	second, err := clusterload.StartServer(t.Context(), c.ControlPlane, clusterload.ServerOptions{Name: "second", StandBy: true})
	require.NoError(t, err)
	for name, server := range map[string]string{"default-scheduler": first.URL, "second-scheduler": second.URL} {
		c.Ledger.URL = server
		c.StartKubeScheduler(name, name+".yaml")
	}
	c.Create(append(
		testbed.NewPods(pods/2, "one", "default-scheduler", "1"),
		testbed.NewPods(pods/2, "two", "second-scheduler", "1")...)...)
	c.settled(fitting)

	code, err := first.Stop()
	require.NoError(t, err)
	assert.Zero(t, code)
	c.settled(fitting)
	assert.Empty(t, c.Watcher.Snapshot().FittingPods)
	c.RequireNeverOvercommitted()
	require.Zero(t, c.Watcher.Gaps(), "events were lost: the verdict is not complete")
}

// settled waits until so many pods are bound, and none after these.
func (c *cluster) settled(bound int) {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), 2*testbed.Soon)
	defer cancel()
	for ctx.Err() == nil {
		changed := c.Watcher.Changed()
		if c.Watcher.Snapshot().Bound >= bound {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	assert.Never(c.T, func() bool { return c.Watcher.Snapshot().Bound != bound }, testbed.Never, testbed.Poll)
	c.CatchUp()
	require.Equal(c.T, bound, c.Watcher.Snapshot().Bound)
}

// Of two servers that take no part in an election the one that started first has the earlier term, and ends itself as
// soon as it learns of the later one.
func TestTwoServersWithoutAnElection(t *testing.T) {
	c := newCluster(t, shared.StartT(t), 1)
	pod := c.Create(testbed.NewPod("pod", nobody, "3"))[0]
	alone := func(name string) *testbed.Server {
		return testbed.StartServer(t, c.ControlPlane, clusterload.ServerOptions{Name: name, Args: []string{"--leader-elect=false"}})
	}
	first, second := alone("first"), alone("second")
	c.Eventually(func(t *assert.CollectT) { assert.False(t, first.Running()) })
	refusal, err := bindAt(t.Context(), second, pod, c.nodes[0])
	require.NoError(t, err)
	assert.Empty(t, refusal)
	c.RequireNeverOvercommitted()
}
