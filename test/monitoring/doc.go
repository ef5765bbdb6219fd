// Package monitoring has the kinds of prometheus-operator check the files of manifests/monitoring, and those of
// cert-manager the files of manifests/cert-manager. The module also pins Prometheus itself, which `make prometheus`
// builds for test/e2e/monitoring; there the alerts are tested, and the dashboard.
package monitoring
