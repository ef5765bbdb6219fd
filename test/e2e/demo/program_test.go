//go:build e2e

package demo

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// program is a run of examples/demo.
type program struct {
	t    *testing.T
	mark string // in the environment of the program and of all that it starts
	cmd  *exec.Cmd
	done chan struct{} // closed after its end

	mu     sync.Mutex // guards what follows
	output bytes.Buffer
	err    error
}

// start runs examples/demo, which ends with the test at the latest.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{t: t, mark: "STARTED_BY_TEST=" + rand.Text(), done: make(chan struct{})}
	p.cmd = exec.Command(testbed.Program(t, "demo"), args...)
	p.cmd.Dir = testbed.File(t)
	p.cmd.Env = append(os.Environ(), p.mark)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		err := p.cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err = err
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(os.Interrupt)
		<-p.done
		if t.Failed() {
			t.Logf("it printed:\n%s", p.text())
		}
	})
	return p
}

// Write takes what the program prints.
func (p *program) Write(printed []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(printed)
}

func (p *program) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// await waits until the program has printed something, and returns what it was.
func (p *program) await(pattern string) []string {
	p.t.Helper()
	what := regexp.MustCompile(pattern)
	var found []string
	require.Eventually(p.t, func() bool {
		found = what.FindStringSubmatch(p.text())
		select {
		case <-p.done:
			return true
		default:
			return found != nil
		}
	}, 2*testbed.Soon, testbed.Poll, "%s was never printed", pattern)
	require.NotNil(p.t, found, "the program ended before it printed %s", pattern)
	return found
}

// commands are the lines to be typed, as they were printed.
func (p *program) commands() []string {
	p.t.Helper()
	p.await(`(?s)Try, in another terminal:\n\n.*\n\n`)
	_, after, _ := strings.Cut(p.text(), "Try, in another terminal:\n\n")
	block, _, _ := strings.Cut(after, "\n\n")
	return strings.Split(block, "\n")
}

// typeIn runs lines in a shell as somebody types them, in another folder, and returns what each of them said.
func (p *program) typeIn(lines []string) map[string]string {
	p.t.Helper()
	said, shown := map[string]string{}, p.t.TempDir()
	script := "set -e\n"
	for i, line := range lines {
		require.True(p.t, strings.HasPrefix(line, "  "), "%q is no command", line)
		file := filepath.Join(shown, string(rune('a'+i)))
		script += "exec >" + file + " 2>&1\n" + line + "\n"
	}
	shell := exec.CommandContext(p.t.Context(), "bash", "-c", script)
	shell.Dir = shown
	err := shell.Run()
	for i, line := range lines {
		content, _ := os.ReadFile(filepath.Join(shown, string(rune('a'+i))))
		command, _, _ := strings.Cut(line, "  #")
		said[strings.TrimSpace(command)] = string(content)
		p.t.Logf("$%s\n%s", line, content)
	}
	require.NoError(p.t, err, "one of the printed commands fails")
	return said
}

// interrupt presses Ctrl-C, after which nothing is left of the program.
func (p *program) interrupt() {
	p.t.Helper()
	require.Greater(p.t, len(p.processes()), 5, "etcd, the API server, the server, three schedulers and itself")
	kubeconfig := p.await(`export KUBECONFIG=(\S+)`)[1]
	require.FileExists(p.t, kubeconfig)
	dir := filepath.Dir(filepath.Dir(kubeconfig))
	require.Contains(p.t, filepath.Base(dir), "globalreserve-controlplane-")
	require.NoError(p.t, p.cmd.Process.Signal(os.Interrupt))
	p.awaitEnd()
	assert.NoDirExists(p.t, dir, "files are left")
}

// awaitEnd waits until the program has ended well, after which none of what it started is left.
func (p *program) awaitEnd() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(testbed.Soon):
		p.t.Fatal("it does not end")
	}
	require.NoError(p.t, p.err)
	assert.Empty(p.t, p.processes(), "processes are left")
}

// processes are those that the program started, and itself.
func (p *program) processes() []string {
	p.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(p.t, err)
	require.NotEmpty(p.t, files, "this test looks for processes in /proc")
	var found []string
	for _, file := range files {
		environment, err := os.ReadFile(file)
		if err == nil && bytes.Contains(environment, []byte(p.mark+"\x00")) {
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			found = append(found, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}
