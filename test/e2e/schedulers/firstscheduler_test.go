package schedulers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const first = "first-scheduler"

// firstCluster is a control plane with nodes of 4 CPUs and a GlobalReserve server.
type firstCluster struct{ testbed.Cluster }

func newFirstCluster(t *testing.T, nodes int) *firstCluster {
	t.Helper()
	c := &firstCluster{testbed.NewCluster(t, shared.StartT(t))}
	c.AddNodes(nodes, controlplane.NodeTemplate{})
	c.StartServer(clusterload.ServerOptions{})
	return c
}

// start runs the scheduler against a server at url.
func (c *firstCluster) start(part, url string, args ...string) *controlplane.Process {
	c.T.Helper()
	kubeconfig, err := c.Kubeconfig("system:kube-scheduler")
	require.NoError(c.T, err)
	log := filepath.Join(c.LogDir(), part+".log")
	process, err := c.StartProcess(c.T.Context(), controlplane.ProcessOptions{
		Name: part, Path: testbed.Program(c.T, "firstscheduler"), LogFile: log,
		Args:  append([]string{"--kubeconfig=" + kubeconfig, "--globalreserve-url=" + url}, args...),
		Ready: clusterload.LogSays(log, "placing pods"),
	})
	require.NoError(c.T, err)
	return process
}

// awaitBound waits until so many pods have a node, and returns their names.
func (c *firstCluster) awaitBound(pods int) map[string]bool {
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

// The pods of examples/nginx.yaml are placed, those of others are left alone, and pods without capacity
// wait for it.
func TestPlacesItsPods(t *testing.T) {
	c := newFirstCluster(t, 2)
	c.start(first, c.Server.URL)
	c.ApplyFile("examples", "nginx.yaml")
	c.CreatePod("foreign", "somebody-else", "100m")
	c.awaitBound(3)

	c.Create(testbed.NewPods(5, "large", first, "3")...) // 5 x 3 CPU where 2 x 4 are, of which 1.5 are taken
	before := c.awaitBound(5)
	assert.NotContains(t, before, "foreign")

	// Capacity that comes free is used by a pod that waits.
	var gone string
	for name := range before {
		if strings.HasPrefix(name, "large") {
			gone = name
		}
	}
	c.Delete(gone)
	after := c.awaitBound(5)
	assert.NotContains(t, after, gone, "a pod that waited takes its capacity")
	assert.NotContains(t, after, "foreign")
	c.RequireNeverOvercommitted()
}

// A scheduler that is killed between its reserve and its bind leaves a reservation behind, and that is
// gone when its time is over: not before, and without anybody cleaning up.
func TestDiesBetweenReserveAndBind(t *testing.T) {
	c := newFirstCluster(t, 1)
	target, err := url.Parse(c.Server.URL)
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	binds, release := make(chan struct{}, 1), make(chan struct{})
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == testbed.BindPath { // goes no further
			select {
			case binds <- struct{}{}:
			default:
			}
			<-release
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	t.Cleanup(func() { close(release) })
	const ttl = 10 * time.Second
	process := c.start("doomed", between.URL, fmt.Sprint("--reservation-ttl=", ttl))
	began := time.Now()
	c.Create(testbed.NewPods(1, "pod", first, "3")...)
	select {
	case <-binds:
	case <-time.After(testbed.Soon):
		require.Fail(t, "it never came to bind")
	}
	require.NoError(t, process.Kill())
	asking, err := client.New(client.Options{URL: c.Server.URL})
	require.NoError(t, err)
	t.Cleanup(asking.Close)
	explained, err := asking.Explain(t.Context(), namespace, "pod-0")
	require.NoError(t, err)
	require.Equal(t, "Reserved", explained.State)
	require.Equal(t, "node-0", explained.Node)
	require.WithinRange(t, explained.ExpiresAt, began.Add(ttl-2*time.Second), time.Now().Add(ttl))

	require.Eventually(t, func() bool {
		return len(c.Kept()) == 0 && c.CPU("node-0").Reserved == 0
	}, ttl+testbed.Soon, testbed.Poll, "the capacity is given back")
	assert.GreaterOrEqual(t, time.Since(began), ttl-time.Second, "and not before its time")
	assert.Zero(t, c.Watcher.Snapshot().Bound)

	// The pod and its capacity are there for whoever comes next.
	c.start("next", c.Server.URL)
	c.awaitBound(1)
	c.RequireNeverOvercommitted()
}
