package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// groupScheduler is the file of the example group scheduler's program.
var groupScheduler string

// shared is the control plane of all tests that do not break it.
var shared controlplane.Shared

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "globalreserve-e2e-")
	if err == nil {
		defer os.RemoveAll(dir)
		groupScheduler = filepath.Join(dir, "groupscheduler")
		err = buildGroupScheduler()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return controlplane.Run(m, &shared)
}

func buildGroupScheduler() error {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return err
	}
	build := exec.CommandContext(context.Background(), "go", "build", "-o", groupScheduler, "./examples/groupscheduler")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the group scheduler: %w\n%s", err, output)
	}
	return nil
}
