// Package plugin tests globalreserve-scheduler on a real control plane: kube-scheduler with the plugin compiled in, and
// the ledger in its process. It needs bin/controlplane and bin/globalreserve-scheduler (make scheduler controlplane),
// and bin/globalreserve (make build) for what is compared with it.
//
// cluster_test.go starts what a test needs.
package plugin
