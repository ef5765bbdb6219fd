package schedulers

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	embeddedNodes = 50
	embedded      = "embedded-scheduler"
)

// startEmbedded builds and starts the example, with a kube-scheduler that asks it, and has both ask for more
// than there is.
func startEmbedded(t *testing.T) (*testbed.Cluster, *controlplane.Process) {
	t.Helper()
	c := testbed.NewCluster(t, shared.StartT(t))
	c.AddNodes(embeddedNodes, controlplane.NodeTemplate{})
	proxy, err := c.StartFaultProxy() // slows bindings down, so that gangs can be seen half way
	require.NoError(t, err)
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if controlplane.IsBinding(r) {
			return controlplane.Fault{Before: 50 * time.Millisecond}
		}
		return controlplane.Fault{}
	})
	kubeconfig, err := clusterload.ServerKubeconfigThrough(t.Context(), c.ControlPlane, proxy) // the server's own rights are enough
	require.NoError(t, err)
	port, err := c.FreePort()
	require.NoError(t, err)
	c.Ledger.URL = "http://127.0.0.1:" + strconv.Itoa(port)
	process, err := c.StartProcess(t.Context(), controlplane.ProcessOptions{
		Name: embedded, Path: testbed.Program(t, "embedded"), Args: []string{"--kubeconfig=" + kubeconfig, "--port=" + strconv.Itoa(port), "--peer-address=127.0.0.1:0"},
		Ready: controlplane.HTTPReady(c.Ledger.URL+"/readyz", nil), ReadyTimeout: time.Minute,
	})
	require.NoError(t, err)
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	race(&c, clusterload.RaceOptions{
		Capacity:   embeddedNodes * nodeCPUs * 1000,
		Sizes:      []corev1.ResourceList{testbed.Requests("500m"), testbed.Requests("1"), testbed.Requests("1500m")},
		Schedulers: []string{"default-scheduler"}, GangScheduler: embedded, GangSize: 8, GangPercent: 50,
	}, func(name string) string { return name })
	return &c, process
}

// awaitOnlyBound waits until the ledger has what is bound, of both schedulers, and keeps nothing else.
func awaitOnlyBound(c *testbed.Cluster, bound int) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		account, err := c.Ledger.Nodes(c.T.Context())
		require.NoError(t, err)
		allocations, reserved := 0, int64(0)
		for _, node := range account.Nodes {
			assert.False(t, node.Overcommitted, node.Name)
			allocations += node.AllocationCount
			for _, amount := range node.Resources {
				reserved += amount.Reserved
			}
		}
		assert.Equal(t, bound, allocations)
		assert.Zero(t, reserved)
	})
}

func TestRaceWithAnEmbeddedServer(t *testing.T) {
	c, process := startEmbedded(t)
	awaitOnlyBound(c, settle(c).Bound)
	code, err := process.Stop()
	require.NoError(t, err)
	assert.Zero(t, code, "it stops cleanly when it is told to")
}

// The process with the ledger is killed in the middle of the race, more than once, most often between the
// binds of a gang. Nobody takes the capacity of the rest of that gang, and no allocation is left behind.
func TestKilledInTheRace(t *testing.T) {
	c, process := startEmbedded(t)
	for range 3 {
		before := c.Watcher.Snapshot().Bound
		require.Eventually(t, func() bool {
			snapshot := c.Watcher.Snapshot()
			_, half := snapshot.CountGangs()
			return half > 0 && snapshot.Bound > before
		}, testbed.Soon, time.Millisecond)
		require.NoError(t, process.Kill())
		require.NoError(t, process.Start(t.Context()))
	}
	awaitOnlyBound(c, settle(c).Bound)
}
