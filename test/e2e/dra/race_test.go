//go:build e2e

package dra

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// Two kube-schedulers that know nothing of GlobalReserve race for the devices of ten nodes, with the webhook. That the
// race can be lost without it is in slower_test.go.
func TestRace(t *testing.T) {
	c := newCluster(t, raceNodes, raceDevices)
	schedulers := []string{"first", "second"}
	for _, s := range schedulers {
		require.NoError(t, c.StartScheduler(t.Context(), s, nil))
	}
	c.startWebhook()
	c.verdict.forget()
	for round := range *rounds {
		c.raceOnce(t, fmt.Sprintf("round-%d", round), schedulers)
		c.clear()
	}
	require.Zero(t, c.Metric("globalreserve_dra_double_devices"))
}

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

// TestExample applies examples/dra as its README says, with two stock kube-schedulers.
func TestExample(t *testing.T) {
	cp := shared.StartT(t)
	c := &cluster{Cluster: testbed.NewCluster(t, cp), verdict: newVerdict(t, cp.Client())}
	require.Equal(t, []string{"node-0"}, c.AddNodes(1, controlplane.NodeTemplate{}), "as the example names it")
	c.startWebhook()
	for _, name := range []string{"default-scheduler", "second-scheduler"} {
		require.NoError(t, c.StartScheduler(t.Context(), name, nil))
	}
	for _, file := range []string{"devices.yaml", "claims.yaml", "pods.yaml"} {
		c.ApplyFile("examples", "dra", file)
	}
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, testbed.Bound(c.Pods()), 2) })

	allocated := c.allocated()
	require.Len(t, allocated, 2)
	assert.NotEqual(t, allocated[0].Status.Allocation.Devices.Results[0].Device,
		allocated[1].Status.Allocation.Devices.Results[0].Device)
	folder, command := t.TempDir(), "kubectl-reserve devices --ledger-url="+c.Documented()
	c.Eventually(func(e *assert.CollectT) {
		printed, err := c.Shell(folder, command, testbed.File(t, "bin"))
		require.NoError(e, err, "%s", printed)
		for _, claim := range allocated {
			device := claim.Status.Allocation.Devices.Results[0].Device
			assert.Regexp(e, `node-0\s+gpu\.example\.com\s+node-0/`+device+`\s.*`+claim.Name, printed,
				"which claim has which device")
		}
	})
}
