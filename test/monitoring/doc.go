// Package monitoring has the kinds of prometheus-operator check the files of manifests/monitoring. The module also pins
// Prometheus itself, which `make prometheus` builds for test/e2e/monitoring; there the alerts are tested, and the
// dashboard.
package monitoring
