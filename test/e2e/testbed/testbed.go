package testbed

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

// shownLines is how much is shown of the log of a server whose test failed.
const shownLines = 12

// Server is a GlobalReserve server that can be asked.
type Server struct {
	*controlplane.Process
	Caller
	cp *controlplane.ControlPlane
}

// StartServer starts a server that compares itself with the cluster all the time. Its log is shown where the
// test fails.
func StartServer(t testing.TB, cp *controlplane.ControlPlane, o clusterload.ServerOptions) *Server {
	t.Helper()
	// A request of a bind may take a third of its time; a busy machine needs more than the two seconds of the default.
	o.Args = slices.Concat([]string{"--bind-timeout=25s", "--log-level=debug", "--compare-interval=500ms"}, o.Args)
	if o.Binary == "" {
		o.Binary = os.Getenv("GLOBALRESERVE_BINARY")
	}
	server, err := clusterload.StartServer(t.Context(), cp, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the server's log:\n%s", Tail(server.LogFile(), shownLines))
		}
	})
	return &Server{Process: server.Process, Caller: Caller{URL: server.URL}, cp: cp}
}

// Crash ends the only server of a cluster as a crash does and starts it again.
func (s *Server) Crash(t testing.TB) {
	t.Helper()
	s.KillAlone(t)
	require.NoError(t, s.Start(t.Context()))
}

// KillAlone ends the only server of a cluster as a crash does; the next one need not wait for the end of its Lease.
func (s *Server) KillAlone(t testing.TB) {
	t.Helper()
	require.NoError(t, s.Kill())
	require.NoError(t, clusterload.FreeLease(t.Context(), s.cp))
}

// File is the path of a file of the repository, which must be there: a program is built by 'make build'.
func File(t testing.TB, path ...string) string {
	t.Helper()
	root, err := controlplane.RepositoryRoot()
	require.NoError(t, err)
	file := filepath.Join(append([]string{root}, path...)...)
	_, err = os.Stat(file)
	require.NoError(t, err)
	return file
}

// Program builds a program of examples/ and returns its file. It stays there: what did not change is not built again.
func Program(t testing.TB, example string) string {
	t.Helper()
	root := File(t)
	program := filepath.Join(root, "bin", "examples", example)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./examples/"+example)
	build.Dir = root
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return program
}

// Shell runs commands in a folder as an administrator of the cluster does, with folders before the PATH, and returns
// what they print.
func (c *Cluster) Shell(folder, commands string, path ...string) (printed string, err error) {
	c.T.Helper()
	kubeconfig, err := c.AdminKubeconfig()
	require.NoError(c.T, err)
	ctx, cancel := context.WithTimeout(c.T.Context(), Soon)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	path = append(path, c.BinDir(), os.Getenv("PATH"))
	shell.Dir, shell.Env = folder, append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+folder,
		"PATH="+strings.Join(path, string(os.PathListSeparator)))
	output, err := shell.CombinedOutput()
	return string(output), err
}

// Browser is the browser that web/e2e drives, or why there is none.
func Browser() (path, missing string) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", "there is no node"
	}
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return "", err.Error()
	}
	if _, err := os.Stat(filepath.Join(root, "web", "node_modules", "playwright-core")); err != nil {
		return "", "web/node_modules is not there; run make web-tools"
	}
	for _, name := range []string{os.Getenv("BROWSER"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, ""
		}
	}
	return "", "there is no chromium"
}

// Policy writes a policy with these rules, and returns its file.
func Policy(t testing.TB, rules string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "policy.yaml")
	ChangePolicy(t, file, rules)
	return file
}

// ChangePolicy writes a policy with other rules in its place.
func ChangePolicy(t testing.TB, file, rules string) {
	t.Helper()
	const head = "apiVersion: config.globalreserve.io/v1alpha1\nkind: GlobalReservePolicy\n"
	require.NoError(t, os.WriteFile(file, []byte(head+rules), 0o600))
}

// Tail returns the last lines of a file, or why it cannot be read.
func Tail(file string, lines int) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
