package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	pollInterval = 25 * time.Millisecond
	logTailBytes = 2048
)

// ReadyFunc reports whether a started program can be used yet: nil means yes. Process.Start calls
// it again and again until it agrees, the program ends, or the deadline passes.
type ReadyFunc func(ctx context.Context) error

// ProcessOptions describes a program to run.
type ProcessOptions struct {
	// Name is what errors call the program. Default: the base name of Path.
	Name string
	// Path is the program's file.
	Path string
	// Args are its arguments, without the program's name.
	Args []string
	// Env is added to the environment of the calling process, as KEY=value.
	Env []string
	// LogFile receives standard output and standard error. It is appended to, so that the log of a
	// restarted program keeps what came before.
	LogFile string
	// Ready decides when Start returns. Default: as soon as the program runs.
	Ready ReadyFunc
	// ReadyTimeout is how long Start waits for Ready. Default: Patience.
	ReadyTimeout time.Duration
	// StopTimeout is how long Stop waits after SIGTERM before it sends SIGKILL. Default: Patience.
	StopTimeout time.Duration
}

// Process runs one program and can start it again after its end. It is safe for concurrent use.
// The program dies with the process that started it, even when that one is killed (on Linux).
type Process struct {
	options ProcessOptions

	mu  sync.Mutex // guards run
	run *run       // the latest run; nil before the first Start
}

// run is one life of the program.
type run struct {
	pid  int
	done chan struct{} // closed after the program has been waited for
	// code and err may be read once done is closed.
	code int
	err  error
}

// NewProcess returns a Process that is not started yet.
func NewProcess(options ProcessOptions) *Process {
	options.Name = cmp.Or(options.Name, filepath.Base(options.Path))
	options.ReadyTimeout = cmp.Or(options.ReadyTimeout, Patience)
	options.StopTimeout = cmp.Or(options.StopTimeout, Patience)
	return &Process{options: options}
}

// Name returns the name the process goes by.
func (p *Process) Name() string { return p.options.Name }

// LogFile returns the file that holds the program's output.
func (p *Process) LogFile() string { return p.options.LogFile }

// PID returns the process id, or 0 when the program is not running.
func (p *Process) PID() int {
	if r := p.current(); r != nil && r.alive() {
		return r.pid
	}
	return 0
}

// Running tells whether the program is running.
func (p *Process) Running() bool { return p.PID() != 0 }

// Start runs the program and waits until it is ready. It fails at once when the program ends
// before that, and then quotes the end of its log. A program that does not become ready is killed.
func (p *Process) Start(ctx context.Context) error {
	r, err := p.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.options.Name, err)
	}
	if err := p.awaitReady(ctx, r); err != nil {
		killErr := p.Kill()
		return errors.Join(fmt.Errorf("start %s: %w%s", p.options.Name, err, p.logTail()), killErr)
	}
	return nil
}

// Stop asks the program to end (SIGTERM), kills it when it does not within the stop timeout, and
// returns its exit code: -1 when a signal ended it. A killed program is an error. Stop on a program
// that has ended returns the code it ended with.
func (p *Process) Stop() (int, error) {
	r := p.current()
	if r == nil {
		return 0, nil
	}
	r.signal(syscall.SIGTERM)
	if r.wait(p.options.StopTimeout) {
		return r.code, nil
	}
	if err := p.Kill(); err != nil {
		return -1, err
	}
	return -1, fmt.Errorf("%s did not end within %s of SIGTERM and was killed%s",
		p.options.Name, p.options.StopTimeout, p.logTail())
}

// Kill ends the program with SIGKILL and returns when it is gone.
func (p *Process) Kill() error {
	r := p.current()
	if r == nil {
		return nil
	}
	r.signal(syscall.SIGKILL)
	if !r.wait(Patience) {
		return fmt.Errorf("%s (process %d) is still there %s after SIGKILL",
			p.options.Name, r.pid, Patience)
	}
	return nil
}

// Signal sends a signal to the program. After SIGSTOP it returns when the program does nothing more.
func (p *Process) Signal(signal syscall.Signal) error {
	r := p.current()
	if r == nil || !r.alive() {
		return fmt.Errorf("%s is not running", p.options.Name)
	}
	if err := syscall.Kill(r.pid, signal); err != nil || signal != syscall.SIGSTOP {
		return err
	}
	return awaitStopped(r.pid)
}

// Wait waits for the program to end and returns its exit code, -1 when a signal ended it.
func (p *Process) Wait(ctx context.Context) (int, error) {
	r := p.current()
	if r == nil {
		return 0, fmt.Errorf("%s was never started", p.options.Name)
	}
	select {
	case <-r.done:
		return r.code, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for the end of %s: %w", p.options.Name, ctx.Err())
	}
}

func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

func (p *Process) launch() (*run, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && p.run.alive() {
		return nil, fmt.Errorf("it is running already (process %d)", p.run.pid)
	}
	//nolint:noctx // the program outlives the call that starts it; Stop and Kill end it
	cmd := exec.Command(p.options.Path, p.options.Args...)
	cmd.Env = append(os.Environ(), p.options.Env...)
	cmd.SysProcAttr = childAttributes()
	if p.options.LogFile != "" {
		log, err := os.OpenFile(p.options.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open its log: %w", err)
		}
		defer log.Close() // the child holds its own descriptor
		cmd.Stdout, cmd.Stderr = log, log
	}
	r := &run{done: make(chan struct{})}
	started := make(chan error)
	go r.live(cmd, started)
	if err := <-started; err != nil {
		return nil, err
	}
	p.run = r
	return r, nil
}

// live starts the program and waits for its end. The kernel's "kill the child when its parent dies" is tied to the
// thread that started the child, so this goroutine keeps its thread for as long as the child lives.
func (r *run) live(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(r.done)
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	r.pid = cmd.Process.Pid
	started <- nil
	r.err = cmd.Wait()
	r.code = cmd.ProcessState.ExitCode()
}

func (p *Process) awaitReady(ctx context.Context, r *run) error {
	if p.options.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.options.ReadyTimeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		if err := p.options.Ready(ctx); err == nil {
			return nil
		} else if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-r.done:
			return fmt.Errorf("it ended before it was ready: exit code %d: %w", r.code, r.err)
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("not ready yet: %w", ctx.Err())
			}
			return fmt.Errorf("not ready within %s: %w", p.options.ReadyTimeout, last)
		case <-ticker.C:
		}
	}
}

// logTail returns the end of the log as a block for an error message, or "" when there is none.
func (p *Process) logTail() string {
	log, err := os.ReadFile(p.options.LogFile)
	if err != nil || len(log) == 0 {
		return ""
	}
	if len(log) > logTailBytes {
		log = log[len(log)-logTailBytes:]
	}
	return fmt.Sprintf("\n--- end of %s\n%s", p.options.LogFile, log)
}

func (r *run) alive() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// signal reaches the whole process group. A program that is gone already needs no signal.
func (r *run) signal(signal syscall.Signal) {
	if r.alive() {
		_ = syscall.Kill(-r.pid, signal)
	}
}

// wait tells whether the program ended within the time given.
func (r *run) wait(timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-r.done:
		return true
	case <-timer.C:
		return false
	}
}
