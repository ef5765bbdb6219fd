//go:build e2e

package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestDriftIsFoundAndRepaired keeps from the server that a pod was created and bound, as no watch of the
// API server does: only a list tells. The comparison has to find it, count it once and put it right.
func TestDriftIsFoundAndRepaired(t *testing.T) {
	t.Parallel() // most of the time it waits for the comparison to be sure
	c := newOwnCluster(t, 2)
	proxy := c.startProxiedServer("--full-compare-interval=3s")
	c.requireAgreement()
	proxy.SetFault(func(*http.Request) controlplane.Fault { return controlplane.Fault{HideEvents: "unheard-of"} })
	pod := c.CreatePod("unheard-of", nobody, "3")
	require.NoError(c.T, c.BindDirectly(pod.Name, "node-0"))
	c.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, 1, c.Metric(driftFound, "kind", "missing_allocation"))
	})
	c.requireAgreement()
	allocation := c.AllocationOf(pod)
	require.Equal(t, "node-0", allocation.Node)
	require.Contains(t, c.Bind(c.CreatePod("other", nobody, "2"), "node-0"), "cpu", "what was found counts")
	require.Equal(t, 1, c.Metric(driftFound), "what was put right is found once")
	require.Contains(t, testbed.Tail(c.Server.LogFile(), 1<<20), "the ledger differed from the cluster and was repaired")
	proxy.SetFault(nil)
	c.Delete(pod.Name)
	c.requireAgreement()
	c.RequireNeverOvercommitted()
}
