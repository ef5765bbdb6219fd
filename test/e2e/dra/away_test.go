//go:build e2e

package dra

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

// What was given twice before the server was asked is given to nobody else. While the server is away no device is
// given, and one can be taken away. The next server knows who has which.
func TestServerIsAway(t *testing.T) {
	c := newCluster(t, 1, 3)
	c.createClaims("goes", "stays", "next", "first", "second")
	for _, name := range []string{"first", "second"} {
		require.NoError(t, c.allocate(name, false, result("node-0", "gpu-2")))
	}
	c.startWebhook()
	require.Equal(t, 1, c.Metric("globalreserve_dra_double_devices"))
	require.ErrorContains(t, c.allocate("next", false, result("node-0", "gpu-2")),
		"is allocated to more ResourceClaims than it may be")
	require.NoError(t, c.allocate("goes", false, result("node-0", "gpu-0")))
	require.NoError(t, c.allocate("stays", false, result("node-0", "gpu-1")))
	require.NoError(t, c.StopPart(clusterload.ServerName))
	require.ErrorContains(t, c.allocate("next", false, result("node-0", "gpu-0")), "failed calling webhook")
	require.NoError(t, c.release(t.Context(), "goes"))
	require.NoError(t, c.StartPart(t.Context(), clusterload.ServerName))
	c.Eventually(func(t *assert.CollectT) {
		assert.ErrorContains(t, c.allocate("next", false, result("node-0", "gpu-1")),
			"is allocated to ResourceClaim default/stays")
	})
	require.NoError(t, c.allocate("next", false, result("node-0", "gpu-0")))
}
