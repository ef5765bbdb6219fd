package limits

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// shared is the control plane of all tests, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// newCluster starts a cluster of so many nodes of 4 CPUs, whose API server asks the server about bindings.
func newCluster(t *testing.T, nodes int, args ...string) *testbed.Cluster {
	t.Helper()
	c := testbed.NewCluster(t, shared.StartT(t))
	c.AddNodes(nodes, controlplane.NodeTemplate{})
	webhook, err := clusterload.NewWebhook(c.ControlPlane)
	require.NoError(t, err)
	c.StartServer(clusterload.ServerOptions{Args: slices.Concat(webhook.Args, args)})
	require.NoError(t, webhook.Install(t.Context(), c.ControlPlane, nil))
	return &c
}
