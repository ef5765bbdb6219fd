package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	namespace = "default"
	// poll is how often a condition is looked at; soon and late are how long it may take to come
	// true. Both are far above what it takes on an idle machine.
	poll = 50 * time.Millisecond
	soon = 20 * time.Second
	late = 90 * time.Second
	// quiet is how long no pod may change before a cluster counts as settled.
	quiet = time.Second
)

// cluster is a control plane with what judges it and, mostly, a GlobalReserve server.
type cluster struct {
	*controlplane.ControlPlane
	t       *testing.T
	watcher *clusterload.Watcher
	rebinds *rebindWatch
	server  *testbed.Server
}

// newCluster makes so many nodes of 4 CPUs and 16 GiB.
func newCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	return clusterOn(t, shared.StartT(t), nodes)
}

// newOwnCluster is newCluster for a test that stops parts of the control plane.
func newOwnCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	return clusterOn(t, controlplane.StartT(t, controlplane.Options{}), nodes)
}

func clusterOn(t *testing.T, cp *controlplane.ControlPlane, nodes int) *cluster {
	t.Helper()
	c := &cluster{ControlPlane: cp, t: t}
	c.addNodes(nodes, controlplane.NodeTemplate{})
	c.watcher = testbed.Watch(t, cp)
	c.rebinds = startRebindWatch(t, c.Client())
	return c
}

// newServedCluster is newCluster with a server, which compares itself all the time.
func newServedCluster(t *testing.T, nodes int, args ...string) *cluster {
	t.Helper()
	c := newCluster(t, nodes)
	c.startServer(clusterload.ServerOptions{Args: args})
	return c
}

// in returns the same cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	inner := *c
	inner.t = t
	return &inner
}

func (c *cluster) startServer(options clusterload.ServerOptions) {
	c.t.Helper()
	options.Args = append([]string{"--full-compare-interval=3s"}, options.Args...)
	c.server = testbed.StartServer(c.t, c.ControlPlane, options)
}

func (c *cluster) addNodes(n int, template controlplane.NodeTemplate) []string {
	c.t.Helper()
	names, err := c.CreateNodes(c.t.Context(), n, template)
	require.NoError(c.t, err)
	return names
}

// startScheduler starts a kube-scheduler with a file of scheduler-config/, in front of the server or,
// without one, on its own.
func (c *cluster) startScheduler(name, file string) {
	c.t.Helper()
	url := ""
	if c.server != nil {
		url = c.server.URL
	}
	config, err := clusterload.SchedulerConfig(file, url)
	require.NoError(c.t, err)
	require.NoError(c.t, c.StartScheduler(c.t.Context(), name, config))
}

// startGroupScheduler runs examples/groupscheduler as a process of its own.
func (c *cluster) startGroupScheduler(name string) {
	c.t.Helper()
	o := clusterload.GroupSchedulerOptions{
		Name: name, SchedulerName: "group-scheduler", Command: []string{testbed.Program(c.t, "groupscheduler")},
	}
	if c.server != nil {
		o.ServerURL = c.server.URL
	}
	_, err := clusterload.StartGroupScheduler(c.t.Context(), c.ControlPlane, o)
	require.NoError(c.t, err)
}

// awaitSettled waits until nothing is left to do for any scheduler.
func (c *cluster) awaitSettled(within time.Duration) clusterload.Snapshot {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), within)
	defer cancel()
	snapshot, err := c.watcher.AwaitSettled(ctx, quiet)
	require.NoError(c.t, err)
	require.NoError(c.t, c.watcher.CatchUp(ctx))
	return snapshot
}

// requireNeverOvercommitted fails if at any event a node had more bound than it offers, or a pod was
// bound twice.
func (c *cluster) requireNeverOvercommitted() {
	c.t.Helper()
	require.Empty(c.t, c.watcher.Violations(), "nodes were overcommitted")
	require.Empty(c.t, c.rebinds.seen(), "pods were bound more than once")
}

// clear deletes all pods and waits until the server has noticed.
func (c *cluster) clear() {
	c.t.Helper()
	require.NoError(c.t, clusterload.DeletePods(c.t.Context(), c.Client(), namespace))
	require.NoError(c.t, c.watcher.CatchUp(c.t.Context()))
	if c.server != nil {
		c.requireAgreement()
	}
	c.watcher.Reset()
}

// eventually polls a condition until it holds; what it last failed by is reported.
func eventually(t *testing.T, within time.Duration, condition func(t *assert.CollectT), what ...any) {
	t.Helper()
	require.EventuallyWithT(t, condition, within, poll, what...)
}
