// Package embedded runs examples/embedded on a real control plane: a group scheduler that has the
// server in its own process, and a kube-scheduler beside it that reaches the same ledger through the
// extender.
package embedded
