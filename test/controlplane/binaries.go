package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// BinDirEnv names the environment variable that points to a directory with the binaries,
// which are then used as they are.
const BinDirEnv = "GLOBALRESERVE_CONTROLPLANE_BIN"

const rootModule = "module github.com/globalreserve/globalreserve"

// RepositoryRoot returns the directory of the repository's go.mod, looked for from the working directory upwards.
func RepositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if line, _, _ := strings.Cut(string(content), "\n"); err == nil && strings.TrimSpace(line) == rootModule {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the working directory is not inside the globalreserve repository; " +
				"run from there, or point " + BinDirEnv + " to a directory with the control plane binaries")
		}
		dir = parent
	}
}

// ReadFile reads a file of the repository, given by the elements of its path.
func ReadFile(path ...string) ([]byte, error) {
	root, err := RepositoryRoot()
	if err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(append([]string{root}, path...)...))
}

// binaries returns the directory of the control plane binaries: BinDirEnv where given, else bin/controlplane
// of the repository, built or brought up to date by test/binaries/build.sh.
func binaries(ctx context.Context, progress io.Writer) (string, error) {
	if dir := os.Getenv(BinDirEnv); dir != "" {
		return filepath.Abs(dir)
	}
	root, err := RepositoryRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "controlplane")
	script := filepath.Join(root, "test", "binaries", "build.sh")
	build := exec.CommandContext(ctx, "bash", script, "--quiet", dir)
	build.Stdout, build.Stderr = progress, progress
	// The script's children must end with it when the caller gives up.
	build.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	build.Cancel = func() error { return syscall.Kill(-build.Process.Pid, syscall.SIGTERM) }
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build the control plane binaries (make controlplane): %w", err)
	}
	return dir, nil
}
