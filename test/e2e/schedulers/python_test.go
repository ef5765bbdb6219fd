//go:build e2e

package schedulers

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const pythonGangs = "python-gangs"

// pythonCluster is a cluster in which examples/python places gangs.
type pythonCluster struct{ testbed.Cluster }

// TestPythonPlacesGangs runs examples/python as it says: behind kubectl proxy, whole gangs or none of their pods, also
// while the server is away.
func TestPythonPlacesGangs(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("NOT RUN: examples/python/gang.py, as there is no python3 here") // as `make e2e` says, too
		return
	}
	c := pythonCluster{testbed.NewCluster(t, shared.StartT(t))}
	c.AddNodes(3, controlplane.NodeTemplate{})
	c.StartServer(clusterload.ServerOptions{})
	c.startPython(python)
	c.createGang("one", 3, 3, "2")
	c.createGang("two", 3, 3, "1500m")
	c.createGang("short", 3, 2, "100m") // its third pod does not come yet
	assert.Equal(t, map[string]int{"one": 3, "two": 3}, c.awaitGangs(6))

	c.Server.KillAlone(t)
	c.createGang("late", 3, 3, "1") // of 12 CPUs, 10.5 are used
	require.NoError(t, c.Server.Start(t.Context()))
	c.createGang("single", 1, 1, "100m") // another gang, which shows that gangs are looked at
	assert.Equal(t, map[string]int{"one": 3, "two": 3, "single": 1}, c.awaitGangs(7),
		"gangs that do not fit, or are not complete, wait whole")

	c.Delete("one-0", "one-1", "one-2")
	assert.Equal(t, map[string]int{"two": 3, "single": 1, "late": 3}, c.awaitGangs(7))
	c.Eventually(func(t *assert.CollectT) { // the server knows them as gangs, too
		assert.Equal(t, 2, c.Metric("globalreserve_gangs", "state", "Whole"))
	})
	c.RequireNeverOvercommitted()
}

// startPython starts the scheduler with two commands, as its first lines do.
func (c *pythonCluster) startPython(python string) {
	c.T.Helper()
	kubeconfig, err := c.Kubeconfig("system:kube-scheduler")
	require.NoError(c.T, err)
	port, err := c.FreePort()
	require.NoError(c.T, err)
	log := filepath.Join(c.LogDir(), "proxy.log")
	_, err = c.StartProcess(c.T.Context(), controlplane.ProcessOptions{
		Name: "proxy", Path: filepath.Join(c.BinDir(), "kubectl"), LogFile: log,
		Ready: clusterload.LogSays(log, "Starting to serve"),
		Args:  []string{"proxy", "--kubeconfig=" + kubeconfig, fmt.Sprint("--port=", port)},
	})
	require.NoError(c.T, err)
	log = filepath.Join(c.LogDir(), pythonGangs+".log")
	_, err = c.StartProcess(c.T.Context(), controlplane.ProcessOptions{
		Name: pythonGangs, Path: python, LogFile: log, Ready: clusterload.LogSays(log, "placing pods"),
		Args: []string{ // isolated and without site-packages: the standard library alone
			"-I", "-S", testbed.File(c.T, "examples", "python", "gang.py"), fmt.Sprint("http://127.0.0.1:", port),
			c.Documented(),
		},
	})
	require.NoError(c.T, err)
}

// createGang creates some of the pods of a gang.
func (c *pythonCluster) createGang(name string, size, pods int, cpu string) {
	c.T.Helper()
	c.Create(testbed.NewPods(pods, name, pythonGangs, cpu, func(pod *corev1.Pod) { gangsched.Mark(pod, name, size) })...)
}

// awaitGangs waits until so many pods have a node, and returns how many of each gang.
func (c *pythonCluster) awaitGangs(pods int) map[string]int {
	c.T.Helper()
	sizes := map[string]int{}
	for name := range awaitBound(&c.Cluster, pods) {
		sizes[name[:strings.LastIndex(name, "-")]]++
	}
	return sizes
}
