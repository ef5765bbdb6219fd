//go:build e2e

package dra

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

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
		content, err := os.ReadFile(testbed.File(t, filepath.Join("examples", "dra", file)))
		require.NoError(t, err)
		require.NoError(t, c.ControlPlane.Apply(t.Context(), content, namespace))
	}
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, testbed.Bound(c.Pods()), 2) })

	kubeconfig, err := c.AdminKubeconfig()
	require.NoError(t, err)
	allocated := c.allocated()
	require.Len(t, allocated, 2)
	assert.NotEqual(t, allocated[0].Status.Allocation.Devices.Results[0].Device,
		allocated[1].Status.Allocation.Devices.Results[0].Device)
	ledger := "--ledger-url=" + c.Documented()
	c.Eventually(func(e *assert.CollectT) {
		command := exec.CommandContext(t.Context(), testbed.File(t, "bin", "kubectl-reserve"), "devices", ledger)
		command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		output, err := command.CombinedOutput()
		require.NoError(e, err, "%s", output)
		for _, claim := range allocated {
			device := claim.Status.Allocation.Devices.Results[0].Device
			assert.Regexp(e, `node-0\s+gpu\.example\.com\s+node-0/`+device+`\s.*`+claim.Name, string(output),
				"which claim has which device")
		}
	})
}
