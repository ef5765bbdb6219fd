package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// driftFound counts what the server's comparisons have found since it started.
const driftFound = "globalreserve_ledger_drift_found_total"

// requireNoDriftSeen fails if the server's comparison has found a difference since the server started.
func (c *cluster) requireNoDriftSeen() {
	c.t.Helper()
	var metrics testbed.Families
	eventually(c.t, soon, func(t *assert.CollectT) {
		metrics = c.scrape(t)
		assert.Contains(t, metrics, driftFound, "nothing was compared yet")
	})
	require.Zero(c.t, metrics.Sum(driftFound), "the ledger differed from the cluster: %s", testbed.Tail(c.server.LogFile(), 20))
}

// TestDriftIsFoundAndRepaired keeps from the server that a pod was created and bound, as no watch of the
// API server does: only a list tells. The comparison has to find it, count it once and put it right.
func TestDriftIsFoundAndRepaired(t *testing.T) {
	t.Parallel() // most of the time it waits for the comparison to be sure
	c := newOwnCluster(t, 2)
	proxy := c.startProxiedServer()
	c.requireAgreement()
	proxy.SetFault(func(*http.Request) controlplane.Fault { return controlplane.Fault{HideEvents: "unheard-of"} })
	pod := c.create(newPod("unheard-of", nobody, "3"))[0]
	c.bindDirectly(pod, "node-0")
	eventually(t, soon, func(t *assert.CollectT) {
		assert.InDelta(t, 1, c.metric(t, driftFound, "kind", "missing_claim"), 0)
	})
	c.requireAgreement()
	claim := c.claimOf(t, pod)
	require.Equal(t, "node-0", claim.Node)
	require.Contains(t, c.bind(t, c.create(newPod("other", nobody, "2"))[0], "node-0"), "cpu", "what was found counts")
	require.InDelta(t, 1, c.metric(t, driftFound), 0, "what was put right is found once")
	require.Contains(t, testbed.Tail(c.server.LogFile(), 1<<20), "the ledger differed from the cluster and was repaired")
	proxy.SetFault(nil)
	c.delete(pod)
	c.requireAgreement()
	c.requireNeverOvercommitted()
}
