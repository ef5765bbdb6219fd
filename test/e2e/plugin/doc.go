// Package plugin tests globalreserve-scheduler on a real control plane: kube-scheduler with the
// plugin compiled in, in both of its modes. It needs bin/controlplane, bin/globalreserve and
// bin/globalreserve-scheduler (make build scheduler controlplane).
//
// cluster_test.go starts what a test needs; most tests run once per mode.
package plugin
