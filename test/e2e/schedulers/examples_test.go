//go:build e2e

package schedulers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	namespace = testbed.Namespace
	nodeCPUs  = 4 // of every node
)

// shared is the control plane of all tests, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// TestEmbeddedPlacesGangs runs examples/embedded in the place of the server, with the server's rights and flags: it
// places its own gangs, and a kube-scheduler behind it the other pods, from one ledger. Started anew it goes on.
func TestEmbeddedPlacesGangs(t *testing.T) {
	const scheduler = "embedded-scheduler"
	c := testbed.NewCluster(t, shared.StartT(t))
	c.AddNodes(2, controlplane.NodeTemplate{})
	c.StartServer(clusterload.ServerOptions{Binary: testbed.Program(t, "embedded")})
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	gang := func(name string, size, pods int, cpu string) {
		c.Create(testbed.NewPods(pods, name, scheduler, cpu, func(p *corev1.Pod) { gangsched.Mark(p, name, size) })...)
	}
	c.Create(testbed.NewPods(2, "other", "default-scheduler", "1")...)
	awaitBound(&c, 2)
	gang("whole", 3, 3, "1500m")
	gang("large", 3, 3, "1500m") // of 8 CPUs, 1.5 are free
	gang("short", 3, 2, "100m")
	bound := awaitBound(&c, 5)
	assert.Contains(t, bound, "whole-2")

	c.Server.KillAlone(t)
	require.NoError(t, c.Server.Start(t.Context()))
	c.Delete("whole-0", "whole-1", "whole-2")
	assert.Contains(t, awaitBound(&c, 5), "large-0")
	c.RequireNeverOvercommitted()
}

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

// importer is a scheduler of somebody else, around the piece of code of docs/go-api.md.
const importer = `package main

import (
	"context"
	"errors"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	corev1 "k8s.io/api/core/v1"
)

func place(ctx context.Context, pods []*corev1.Pod, nodes []string) error {
SNIPPET	_ = answer
	return err
}

func main() { _ = place }
`

// TestGoAPIIsImported follows docs/go-api.md in a module beside a clone: what the page shows compiles there, with the
// oldest versions of Go and Kubernetes that the page gives.
func TestGoAPIIsImported(t *testing.T) {
	page, err := os.ReadFile(testbed.File(t, "docs", "go-api.md"))
	require.NoError(t, err)
	snippet := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, snippet)
	commands := regexp.MustCompile(`(?m)^ {4}(go mod .*)$`).FindAllSubmatch(page, -1)
	require.NotEmpty(t, commands)

	folder := filepath.Join(t.TempDir(), "mine")
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.NoError(t, os.Symlink(testbed.File(t), filepath.Join(filepath.Dir(folder), "globalreserve")))
	program := strings.Replace(importer, "SNIPPET", string(snippet[1]), 1)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600))
	shell := func(command string) string {
		t.Helper()
		run := exec.CommandContext(t.Context(), "bash", "-c", command)
		run.Dir, run.Env = folder, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		output, err := run.CombinedOutput()
		require.NoError(t, err, "%s\n%s", command, output)
		return strings.TrimSpace(string(output))
	}
	shell("go mod init example.com/mine && go mod edit -go=1.24.0")
	for _, command := range commands {
		shell(string(command[1]))
	}
	shell("go vet .")
	assert.Equal(t, "1.24.0", shell("go list -m -f '{{.GoVersion}}'"))
	for _, module := range []string{"k8s.io/api", "k8s.io/client-go"} {
		assert.Equal(t, "v0.32.0", shell("go list -m -f '{{.Version}}' "+module))
	}
}
