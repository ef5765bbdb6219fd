//go:build e2e

package schedulers

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

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
