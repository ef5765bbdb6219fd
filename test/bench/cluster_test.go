package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
)

// nodes is the size of the cluster that is measured on.
const nodes = 5000

// startCluster starts a control plane with all nodes, and with the definitions and the fence that every cluster has
// where manifests/base is applied.
func startCluster(b *testing.B) *controlplane.ControlPlane {
	b.Helper()
	c := controlplane.StartT(b, controlplane.Options{})
	require.NoError(b, crd.Prepare(b.Context(), c))
	say("creating %d nodes", nodes)
	_, err := c.CreateNodes(b.Context(), nodes, controlplane.NodeTemplate{
		Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi"),
		},
		Labels: map[string]string{"topology.kubernetes.io/zone": "a", "kubernetes.io/os": "linux"},
	})
	require.NoError(b, err)
	return c
}

// startServer starts bin/globalreserve as it is run in production: with the rights of its manifests
// and the defaults of its flags.
func startServer(b *testing.B, c *controlplane.ControlPlane) *clusterload.Server {
	b.Helper()
	return startNamed(b, c, clusterload.ServerName)
}

// startNamed starts one of several servers.
func startNamed(b *testing.B, c *controlplane.ControlPlane, name string, args ...string) *clusterload.Server {
	b.Helper()
	server, err := clusterload.StartServer(b.Context(), c, clusterload.ServerOptions{
		Name: name, Args: args,
		ReadyTimeout: runTimeout,
	})
	require.NoError(b, err)
	return server
}

// buildPassthrough builds the extender that does nothing.
func buildPassthrough(b *testing.B) string {
	b.Helper()
	binary := filepath.Join(b.TempDir(), "passthrough")
	output, err := exec.CommandContext(b.Context(), "go", "build", "-o", binary, "./passthrough").CombinedOutput()
	require.NoError(b, err, "%s", output)
	return binary
}

// say reports progress: these benchmarks take minutes.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
