package deletedpods

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const scheduler = "default-scheduler"

// shared is the control plane of the tests with workloads, and plain that of those without, with our definitions.
var (
	shared = controlplane.Shared{Options: controlplane.Options{Workloads: true}, Prepare: crd.Prepare}
	plain  = controlplane.Shared{Prepare: crd.Prepare}
)

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared, &plain)) }

// cluster is a control plane with a GlobalReserve server and one kube-scheduler behind it.
type cluster struct{ testbed.Cluster }

// newCluster starts a cluster without nodes. args are added to the server's command line.
func newCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	return clusterOn(t, &shared, args...)
}

func clusterOn(t *testing.T, plane *controlplane.Shared, args ...string) *cluster {
	t.Helper()
	c := &cluster{testbed.NewCluster(t, plane.StartT(t))}
	c.StartServer(clusterload.ServerOptions{Args: args})
	return c
}

// startScheduler starts the kube-scheduler.
func (c *cluster) startScheduler() {
	c.T.Helper()
	c.StartKubeScheduler(scheduler, "default-scheduler.yaml")
}

// in returns the same cluster for a subtest with a namespace of its own.
func (c *cluster) in(t *testing.T, namespace string) *cluster {
	t.Helper()
	return &cluster{c.In(t, namespace)}
}

// nodes adds n nodes of four CPUs that only the pods of this namespace are for, and waits until pods may be
// scheduled there.
func (c *cluster) nodes(n int) []string {
	c.T.Helper()
	names := c.AddNodes(n, controlplane.NodeTemplate{Prefix: c.Namespace +
		"-", Labels: testbed.Pairs("pool", c.Namespace)})
	c.AwaitUntainted("pool=" + c.Namespace)
	return names
}

// awaitHeld waits until there are so many Reservations in the namespace.
func (c *cluster) awaitHeld(n int, what ...any) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, c.ListReservations(), n) }, what...)
}
