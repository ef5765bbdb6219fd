package controlplane

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeGo stands in for the go command: it notes every build and writes an executable file. 200 packages are to be compiled,
// 25 of them for each binary.
const fakeGo = `#!/bin/sh
case $1 in
version) echo "go version $FAKE_GO_VERSION" ;;
env) echo linux; echo amd64 ;;
list) if [ "$2" = -deps ]; then seq 200 | sed 's/.*/stale/'; else echo v1.2.3; fi ;;
build)
  for n in $(seq 25); do echo "example.com/package$n" >&2; done
  while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
  echo "$1" >>"$FAKE_GO_LOG"
  [ "$1" = "$FAKE_GO_BREAK" ] && { echo "main.go:1:1: this is broken" >&2; exit 1; }
  echo "$1" >"$out"; chmod +x "$out" ;;
esac
`

// buildScript runs a copy of build.sh with the fake go command.
type buildScript struct {
	t                     *testing.T
	dir, version, failing string
}

func newBuildScript(t *testing.T) *buildScript {
	t.Helper()
	root, err := RepositoryRoot()
	require.NoError(t, err)
	b := &buildScript{t: t, dir: t.TempDir(), version: "go1"}
	require.NoError(t, os.Mkdir(b.path("bin"), 0o700))
	require.NoError(t, os.WriteFile(b.path("bin", "go"), []byte(fakeGo), 0o700))
	for _, name := range []string{"build.sh", "go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(root, "test", "binaries", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(b.path(name), content, 0o600))
	}
	return b
}

func (b *buildScript) path(elements ...string) string {
	return filepath.Join(append([]string{b.dir}, elements...)...)
}

func (b *buildScript) run() (string, error) {
	script := exec.Command("bash", b.path("build.sh"), "--quiet", b.path("out"))
	script.Env = append(os.Environ(), "PATH="+b.path("bin")+":"+os.Getenv("PATH"),
		"FAKE_GO_LOG="+b.path("log"), "FAKE_GO_VERSION="+b.version, "FAKE_GO_BREAK="+b.failing)
	output, err := script.CombinedOutput()
	return string(output), err
}

// built returns how many binaries were built since the last call.
func (b *buildScript) built() int {
	b.t.Helper()
	log, err := os.ReadFile(b.path("log"))
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(b.t, err)
	require.NoError(b.t, os.Remove(b.path("log")))
	return strings.Count(string(log), "\n")
}

func TestBuildScript(t *testing.T) {
	b := newBuildScript(t)
	requireRun := func(want int, why string) {
		t.Helper()
		output, err := b.run()
		require.NoError(t, err, output)
		require.Equal(t, want, b.built(), why)
		require.Equal(t, want == 0, output == "", "it speaks only when it builds: %s", output)
	}
	requireRun(6, "nothing is there yet")
	requireRun(0, "all is there")
	require.NoError(t, os.Remove(b.path("out", "kwok")))
	requireRun(6, "a binary is missing")
	b.version = "go2"
	requireRun(6, "another Go release")
	require.NoError(t, os.WriteFile(b.path("go.sum"), []byte("other"), 0o600))
	requireRun(6, "other modules")
	requireRun(0, "all is there")

	b.version, b.failing = "go3", "sigs.k8s.io/kwok/cmd/kwok"
	output, err := b.run()
	require.Error(t, err)
	require.Contains(t, output, "this is broken")
	require.NotContains(t, output, "example.com/", "what was compiled is no reason")
	require.Regexp(t, `\[1/6\] etcd \(\d+s so far\)`, output, "nothing is compiled yet to judge by")
	require.Regexp(t, `\[3/6\] kube-scheduler \(\d+s so far, 50 of 200 packages, about \d+ min \d+ s left\)`, output)
	require.Equal(t, 4, b.built(), "it stops at the first failure")
	b.failing = ""
	requireRun(6, "a failed build does not count")
	leftovers, err := filepath.Glob(b.path("out", ".*.[0-9]*"))
	require.NoError(t, err)
	require.Empty(t, leftovers)
}

func TestBuildScriptRunsSideBySide(t *testing.T) {
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("without flock both runs build; the renames alone keep the result whole")
	}
	b := newBuildScript(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if output, err := b.run(); err != nil {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
	group.Wait()
	require.Equal(t, 6, b.built(), "one run builds, the others wait for it")
}

func TestRepositoryRootOutsideTheRepository(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := Start(t.Context(), Options{})
	require.ErrorContains(t, err, "run from there, or point "+BinDirEnv)
}
