// Package firstscheduler runs examples/firstscheduler on a real control plane: that it does what its
// README says, and that it leaves nothing behind when it dies at the worst moment.
//
// The program is built from its sources and runs as a process, with the rights of a kube-scheduler.
package firstscheduler
