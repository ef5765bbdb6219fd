package durable

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestGangSurvivesAKill reserves a gang, kills the server, and lets the gang's own scheduler bind
// it after the restart, while others want the same capacity all the time.
func TestGangSurvivesAKill(t *testing.T) {
	c := newCluster(t, 4)
	workers, rivals := c.create("worker", "3", 4), c.create("rival", "2", 4)
	gang := gangOn(c.nodes, workers...)
	gang.RequestID = "job-1"
	granted := c.Reserve(gang)
	require.Empty(t, granted.Error)
	require.NotEmpty(t, granted.Reservation)
	before := c.Held()
	require.Len(t, before, 4)

	c.Server.Crash(c.T)
	assert.Equal(t, before, c.Held(), "an acknowledged reservation is not lost")
	c.requireRefused(rivals[0].Name)
	again := c.Reserve(gang)
	assert.Equal(t, granted.Reservation, again.Reservation)
	assert.Equal(t, granted.ExpiresAt, again.ExpiresAt)
	assert.Empty(t, again.FailedPods)
	require.Len(t, c.ListReservations(), 1)
	refused := c.Reserve(gangOn(c.nodes, rivals...))
	assert.Len(t, refused.FailedPods, 4)
	assert.Contains(t, refused.Error, "reservation "+granted.Reservation+"/worker-")

	for i, pod := range workers {
		require.NoError(t, c.BindDirectly(pod.Name, c.nodes[i]))
		if i == 1 {
			c.Server.Crash(c.T) // in the middle of it
		}
	}
	c.Eventually(func(t *assert.CollectT) {
		assert.Empty(t, c.Held())
		assert.Empty(t, c.ListReservations(), "the bindings are the record")
	})
	for _, node := range c.nodes {
		cpu := c.CPU(node)
		assert.Equal(t, [2]int64{3000, 0}, [2]int64{cpu.Bound, cpu.Reserved}, "nothing is counted twice")
	}
	assert.Equal(t, []string{}, c.Reserve(gang).FailedPods, "all of them are where they are to be")
	c.RequireNeverOvercommitted()
}

// requireRefused fails unless filter refuses a pod every node.
func (c *cluster) requireRefused(pod string) {
	c.T.Helper()
	rival := testbed.NewPod(pod, scheduler, "2")
	rival.UID = "of-a-pod-that-is-not-there"
	assert.Len(c.T, c.Filter(rival, c.nodes...), len(c.nodes))
}
