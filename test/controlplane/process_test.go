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
	eventually = time.Minute
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
func shell(t *testing.T, script string, change func(*ProcessOptions)) *Process {
	t.Helper()
	dir := t.TempDir()
	options := ProcessOptions{
		Name: "script", Path: "/bin/sh", Args: []string{"-c", script}, Dir: dir,
		LogFile: filepath.Join(dir, "log"),
		Ready: func(context.Context) error {
			_, err := os.Stat(filepath.Join(dir, "ready"))
			return err
		},
	}
	if change != nil {
		change(&options)
	}
	p := NewProcess(options)
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
			script: "trap 'exit 7' TERM; touch ready; while :; do sleep 0.01; done", within: time.Minute, code: 7,
		},
		"a program that does not handle SIGTERM ends by it": {
			script: "touch ready; exec sleep 1000", within: time.Minute, code: -1,
		},
		"a program that ignores SIGTERM is killed, and its children with it": {
			script: "trap '' TERM; touch ready; sleep 1000", within: 200 * time.Millisecond, code: -1,
			failure: "did not end within 200ms of SIGTERM and was killed",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := shell(t, test.script, func(o *ProcessOptions) { o.StopTimeout = test.within })
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

func TestProcessThatEndedKeepsItsCode(t *testing.T) {
	defer leaks.None(t)
	p := shell(t, "exit 3", func(o *ProcessOptions) { o.Ready = nil })
	_, err := p.Wait(t.Context())
	require.ErrorContains(t, err, "never started")
	require.NoError(t, p.Start(t.Context()))
	code, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, code)
	code, err = p.Stop()
	require.NoError(t, err)
	require.Equal(t, 3, code)
	require.NoError(t, p.Kill(), "there is nothing left to kill")
}

func TestProcessStartFailures(t *testing.T) {
	defer leaks.None(t)
	tests := map[string]struct {
		script  string
		change  func(*ProcessOptions)
		failure []string
	}{
		"it ends before it is ready": {
			script:  "echo no free seat; exit 4",
			failure: []string{"start script", "exit code 4", "no free seat"},
		},
		"it never becomes ready": {
			script:  "echo thinking; exec sleep 1000",
			change:  func(o *ProcessOptions) { o.ReadyTimeout = 5 * time.Second },
			failure: []string{"not ready within 5s", "no such file", "thinking"},
		},
		"there is no such program": {
			change:  func(o *ProcessOptions) { o.Path = "/nowhere/etcd" },
			failure: []string{"start script", "/nowhere/etcd"},
		},
		"its log cannot be written": {
			change:  func(o *ProcessOptions) { o.LogFile = "/nowhere/log" },
			failure: []string{"open its log", "/nowhere/log"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := shell(t, test.script, test.change)
			err := p.Start(t.Context())
			for _, text := range test.failure {
				require.ErrorContains(t, err, text)
			}
			require.False(t, p.Running(), "a failed start leaves nothing behind")
		})
	}
}

func TestProcessRunsAgain(t *testing.T) {
	defer leaks.None(t)
	p := shell(t, "echo $GREETING $$; touch ready; exec sleep 1000", func(o *ProcessOptions) {
		o.Env = []string{"GREETING=hello"}
	})
	require.NoError(t, p.Start(t.Context()))
	first := p.PID()
	require.ErrorContains(t, p.Start(t.Context()), "running already")
	require.NoError(t, os.Remove(filepath.Join(filepath.Dir(p.LogFile()), "ready")))
	require.NoError(t, p.Restart(t.Context()))
	second := p.PID()
	require.NotEqual(t, first, second)
	require.NoError(t, p.Kill())
	require.False(t, exists(first) || exists(second))
	require.NoError(t, p.Start(t.Context()))
	require.NoError(t, p.Signal(syscall.SIGUSR1))
	code, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, -1, code)
	require.ErrorContains(t, p.Signal(syscall.SIGUSR1), "not running")

	log, err := os.ReadFile(p.LogFile())
	require.NoError(t, err)
	require.Contains(t, string(log), fmt.Sprintf("hello %d\nhello %d\n", first, second),
		"the log keeps every run")
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
	require.Eventually(t, func() bool { return !exists(pid) }, eventually, pollInterval)
}

// exists tells whether a process is there and no zombie.
func exists(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
