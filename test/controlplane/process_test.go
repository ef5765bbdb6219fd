//go:build e2e

package controlplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/leaks"
)

const (
	helperEnv  = "GLOBALRESERVE_CONTROLPLANE_TEST_HELPER"
	helperBusy = "busy"
)

// TestMain lets this binary play the program that dies and must take its children with it, or one that is busy.
func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "":
	case helperBusy:
		startBusyThreads()
	default:
		startSleeperAndBlock()
		return
	}
	os.Exit(m.Run())
}

// shell returns a Process that runs a shell script which touches "ready" when it is ready.
func shell(t *testing.T, script string, stopTimeout time.Duration) *Process {
	t.Helper()
	dir := t.TempDir()
	p := NewProcess(ProcessOptions{
		Name: "script", Path: "/bin/sh", Args: []string{"-c", "cd '" + dir + "'; " + script},
		LogFile: filepath.Join(dir, "log"), StopTimeout: stopTimeout,
		Ready: func(context.Context) error {
			_, err := os.Stat(filepath.Join(dir, "ready"))
			return err
		},
	})
	t.Cleanup(func() { require.NoError(t, p.Kill()) })
	return p
}

func TestProcessStop(t *testing.T) {
	defer leaks.None(t)
	tests := map[string]struct {
		script  string
		within  time.Duration // it ends on SIGTERM
		code    int
		failure string
	}{
		"a program that handles SIGTERM ends with its own code": {
			script: "trap 'exit 7' TERM; touch ready; while :; do sleep 0.01; done", within: Patience, code: 7,
		},
		"a program that does not handle SIGTERM ends by it": {
			script: "touch ready; exec sleep 1000", within: Patience, code: -1,
		},
		"a program that ignores SIGTERM is killed, and its children with it": {
			script: "trap '' TERM; touch ready; sleep 1000", within: 200 * time.Millisecond, code: -1,
			failure: "did not end within 200ms of SIGTERM and was killed",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := shell(t, test.script, test.within)
			require.NoError(t, p.Start(t.Context()))
			code, err := p.Stop()
			if test.failure == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.failure)
			}
			require.Equal(t, test.code, code)
			require.False(t, p.Running())
		})
	}
}

// startSleeperAndBlock is the helper's body: it prints the process id of its child and waits.
func startSleeperAndBlock() {
	p := NewProcess(ProcessOptions{Path: "/bin/sleep", Args: []string{"1000"}})
	if err := p.Start(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	_, _ = p.Wait(context.Background())
}

// startBusyThreads is the helper's body: its threads want far more processors than there are, so that a thread that is
// to stop waits for its turn.
func startBusyThreads() {
	for range 32 {
		go func() {
			for {
				_, _ = os.ReadFile(os.DevNull)
			}
		}()
	}
	select {}
}

func TestProcessDiesWithItsParent(t *testing.T) {
	if !diesWithParent {
		t.Skip("only the Linux kernel ends a child whose parent was killed")
	}
	helper := exec.Command(os.Args[0])
	helper.Env = append(os.Environ(), helperEnv+"=1")
	output, err := helper.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, helper.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err, line)
	require.True(t, exists(pid))

	require.NoError(t, helper.Process.Kill())
	_ = helper.Wait() // it reports the signal
	require.Eventually(t, func() bool { return !exists(pid) }, Patience, pollInterval)
}

// exists tells whether a process is there and no zombie.
func exists(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
