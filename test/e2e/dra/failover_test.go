//go:build e2e

package dra

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A write that the leader has granted is held up by another webhook while the leader is killed. The next one does not
// know of it, and gives the device to another claim only when the first write can no longer be carried out.
func TestGrantOfTheLeaderBefore(t *testing.T) {
	c := newCluster(t, 1, 1)
	servers := c.startServers()
	hook := c.startOtherHook("late")
	c.createClaims("late", "next")
	c.verdict.forget()
	leader := c.leader(servers)
	var late error
	var running sync.WaitGroup
	running.Go(func() { late = c.allocate("late", false, result("node-0", "gpu-0")) })
	select {
	case <-hook.asked:
	case <-time.After(testbed.Soon):
		require.FailNow(t, "the other webhook is not asked")
	}
	c.Eventually(func(t *assert.CollectT) {
		granted, err := leader.Metric(c.T.Context(), "globalreserve_decisions_total", "verb", "resourceclaims", "result",
			"granted")
		require.NoError(t, err)
		assert.Positive(t, granted, "the leader has granted it")
	})
	require.NoError(t, leader.Kill())
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.allocate("next", false, result("node-0", "gpu-0"))) })
	close(hook.goOn)
	running.Wait()
	require.Error(t, late)
	t.Logf("the write that was held up: %v", late)
	c.verdict.catchUp(t, c.Client())
	require.Empty(t, c.verdict.joins())
	require.NotEmpty(t, c.allocated())
}
