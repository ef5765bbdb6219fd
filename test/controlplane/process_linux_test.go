//go:build e2e

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSuspendedIsSuspended: the kernel returns from kill(2) before a thread of a busy program has stopped, and what the
// program does in those milliseconds the test would take for what it did before.
func TestSuspendedIsSuspended(t *testing.T) {
	p := NewProcess(ProcessOptions{
		Name: "busy", Path: os.Args[0],
		Env: []string{helperEnv + "=" + helperBusy, "GOMAXPROCS=32"},
	})
	require.NoError(t, p.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, p.Kill()) })
	for range 50 {
		require.NoError(t, p.Signal(syscall.SIGSTOP))
		require.Empty(t, runningThreads(t, p.PID()))
		require.NoError(t, p.Signal(syscall.SIGSTOP), "it has stopped already")
		require.NoError(t, p.Signal(syscall.SIGCONT))
	}
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	require.NoError(t, p.Kill())
	require.Error(t, p.Signal(syscall.SIGSTOP), "it is gone")
}

// runningThreads are the threads of a process that have not stopped, with their states.
func runningThreads(t *testing.T, pid int) (threads []string) {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	require.NoError(t, err)
	require.NotEmpty(t, stats)
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		require.NoError(t, err)
		if _, state, _ := strings.Cut(string(stat), ") "); state[0] != 'T' {
			threads = append(threads, file+" "+state[:1])
		}
	}
	return threads
}
