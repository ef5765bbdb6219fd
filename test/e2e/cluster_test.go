package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	nobody = testbed.Nobody
	// quiet is how long no pod may change before a cluster counts as settled.
	quiet = time.Second
)

// shared is the control plane of all tests that do not break it.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// cluster is a control plane with what judges it and, mostly, a GlobalReserve server.
type cluster struct{ testbed.Cluster }

// newCluster makes so many nodes of 4 CPUs and 16 GiB.
func newCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	return clusterOn(t, shared.StartT(t), nodes)
}

func clusterOn(t *testing.T, cp *controlplane.ControlPlane, nodes int) *cluster {
	t.Helper()
	c := &cluster{testbed.NewCluster(t, cp)}
	c.AddNodes(nodes, controlplane.NodeTemplate{})
	return c
}

// newServedCluster is newCluster with a server.
func newServedCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := newCluster(t, 0)
	c.addServed(nodes)
	return c
}

// addServed creates nodes and starts a server, which compares itself all the time.
func (c *cluster) addServed(nodes int) (names []string) {
	c.T.Helper()
	names = c.AddNodes(nodes, controlplane.NodeTemplate{})
	c.StartServer(clusterload.ServerOptions{})
	return names
}

// in returns the same cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	inner := *c
	inner.T = t
	return &inner
}

// run runs a subtest.
func (c *cluster) run(name string, test func(c *cluster)) bool {
	return c.T.(*testing.T).Run(name, func(t *testing.T) { test(c.in(t)) })
}

// awaitSettled waits until nothing is left to do for any scheduler.
func (c *cluster) awaitSettled() clusterload.Snapshot {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), testbed.Soon)
	defer cancel()
	snapshot, err := c.Watcher.AwaitSettled(ctx, quiet)
	require.NoError(c.T, err)
	require.NoError(c.T, c.Watcher.CatchUp(ctx))
	return snapshot
}

// clear deletes all pods and waits until the server has noticed.
func (c *cluster) clear() {
	c.T.Helper()
	require.NoError(c.T, clusterload.DeletePods(c.T.Context(), c.Client(), testbed.Namespace))
	c.CatchUp()
	if c.Server != nil {
		c.requireAgreement()
	}
	c.Watcher.Reset()
}

// gangOf asks for capacity, in memory, for one pod on each of the nodes.
func gangOf(pods []*corev1.Pod, nodes ...string) *reserver.Request {
	return &reserver.Request{SchedulerName: nobody, Pods: pods, Nodes: nodes, Durable: new(bool)}
}

// newProxiedCluster is a cluster whose server, and nobody else, reaches the API server through a proxy.
func newProxiedCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := newCluster(t, nodes)
	var err error
	c.Proxy, err = c.StartFaultProxy()
	require.NoError(t, err)
	c.StartServer(clusterload.ServerOptions{Proxy: c.Proxy})
	return c
}
