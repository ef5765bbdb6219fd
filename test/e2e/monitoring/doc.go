// Package monitoring has a real Prometheus judge manifests/monitoring: promtool runs the alerts over simulated time,
// and every query of the dashboard is asked over a recorded load. It needs what `make build controlplane prometheus`
// makes.
package monitoring
