//go:build e2e

package kubectl

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// shared is the control plane of all tests, without our definitions.
var shared = controlplane.Shared{}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

// bench is a control plane with a server and the plugin.
type bench struct {
	testbed.Cluster
	plugin     string
	kubeconfig string
	nodes      []string
}

// newBench starts a control plane with two nodes of 4 CPUs, the definition of Reservation and a server.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := benchOn(t, controlplane.StartT(t, controlplane.Options{}))
	require.NoError(t, crd.Prepare(t.Context(), b.ControlPlane))
	b.StartServer(clusterload.ServerOptions{})
	return b
}

// benchOn has neither the definition nor a server.
func benchOn(t *testing.T, cp *controlplane.ControlPlane) *bench {
	t.Helper()
	b := &bench{Cluster: testbed.NewCluster(t, cp), plugin: testbed.File(t, "bin", "kubectl-reserve")}
	var err error
	b.kubeconfig, err = b.AdminKubeconfig()
	require.NoError(t, err)
	b.nodes = b.AddNodes(2, controlplane.NodeTemplate{})
	return b
}

// in returns the same bench for a subtest.
func (b *bench) in(t *testing.T) *bench {
	inner := *b
	inner.T = t
	return &inner
}

// result is what the plugin printed and how it ended.
type result struct {
	out, err string
	code     int
}

// run runs the plugin as a user does, without --ledger-url.
func (b *bench) run(args ...string) result {
	b.T.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(b.T.Context(), b.plugin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.kubeconfig, "HOME="+b.T.TempDir())
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(b.T, err)
	}
	return result{out: out.String(), err: errOut.String(), code: cmd.ProcessState.ExitCode()}
}

// ask is run with --ledger-url.
func (b *bench) ask(args ...string) result {
	b.T.Helper()
	return b.run(append(args, "--ledger-url="+b.Documented())...)
}

// must is run or ask of a command that has to succeed and to say nothing but its output.
func (b *bench) must(got result) string {
	b.T.Helper()
	require.Equal(b.T, 0, got.code, "%s%s", got.out, got.err)
	require.Empty(b.T, got.err)
	return got.out
}
