package controlplane

import "syscall"

// diesWithParent tells that a child ends even when this process is killed.
const diesWithParent = true

// childAttributes puts the child into its own process group, so that a Ctrl-C meant for the test
// does not reach it, and has the kernel kill it when the thread that started it ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
