package controlplane

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// diesWithParent tells that a child ends even when this process is killed.
const diesWithParent = true

// childAttributes puts the child into its own process group, so that a Ctrl-C meant for the test
// does not reach it, and has the kernel kill it when the thread that started it ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when all threads of a child that was sent SIGSTOP have stopped, or when it is gone. kill(2)
// itself returns before: one thread has to get a processor first, which tells the others.
func awaitStopped(pid int) error {
	for {
		// It only looks: the end of the child is waited for elsewhere.
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD): // it ended before it could stop
			return nil
		default:
			return err
		}
	}
}
