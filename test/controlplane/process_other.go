//go:build unix && !linux

package controlplane

import "syscall"

// diesWithParent tells that a child ends even when this process is killed.
const diesWithParent = false

// childAttributes puts the child into its own process group, so that a Ctrl-C meant for the test does not reach it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitStopped returns at once: that a child stops within the call of kill(2) is taken for granted here.
func awaitStopped(int) error { return nil }
