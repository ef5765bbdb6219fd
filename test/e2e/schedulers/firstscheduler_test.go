//go:build e2e

package schedulers

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const first = "first-scheduler"

// startFirst runs the scheduler against the cluster's server.
func startFirst(c *testbed.Cluster) {
	c.T.Helper()
	kubeconfig, err := c.Kubeconfig("system:kube-scheduler")
	require.NoError(c.T, err)
	log := filepath.Join(c.LogDir(), first+".log")
	_, err = c.StartProcess(c.T.Context(), controlplane.ProcessOptions{
		Name: first, Path: testbed.Program(c.T, "firstscheduler"), LogFile: log,
		Args:  []string{"--kubeconfig=" + kubeconfig, "--globalreserve-url=" + c.Documented()},
		Ready: clusterload.LogSays(log, "placing pods"),
	})
	require.NoError(c.T, err)
}

// awaitBound waits until so many pods have a node, and returns their names.
func awaitBound(c *testbed.Cluster, pods int) map[string]bool {
	c.T.Helper()
	names := map[string]bool{}
	c.Eventually(func(t *assert.CollectT) {
		clear(names)
		for _, pod := range testbed.Bound(c.Pods()) {
			names[pod.Name] = true
		}
		assert.Len(t, names, pods)
	})
	return names
}

// The pods of examples/nginx.yaml are placed, those of others are left alone, and pods without capacity wait for it.
func TestPlacesItsPods(t *testing.T) {
	c := testbed.NewCluster(t, shared.StartT(t))
	c.AddNodes(2, controlplane.NodeTemplate{})
	c.StartServer(clusterload.ServerOptions{})
	startFirst(&c)
	c.ApplyFile("examples", "nginx.yaml")
	c.CreatePod("foreign", "somebody-else", "100m")
	awaitBound(&c, 3)

	c.Create(testbed.NewPods(5, "large", first, "3")...) // 5 x 3 CPU where 2 x 4 are, of which 1.5 are taken
	before := awaitBound(&c, 5)
	assert.NotContains(t, before, "foreign")

	// Capacity that comes free is used by a pod that waits.
	var gone string
	for name := range before {
		if strings.HasPrefix(name, "large") {
			gone = name
		}
	}
	c.Delete(gone)
	after := awaitBound(&c, 5)
	assert.NotContains(t, after, gone, "a pod that waited takes its capacity")
	assert.NotContains(t, after, "foreign")
	c.RequireNeverOvercommitted()
}
