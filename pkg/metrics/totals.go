package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// timeToBindBuckets are in seconds: creation times are whole seconds, and a pod that waits for capacity waits for
// hours.
var timeToBindBuckets = []float64{1, 2, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}

// Pending is a scheduler, and a reason for which pods of it were refused.
type Pending struct{ Scheduler, Reason string }

// Totals are where the scrape reads what the cluster has, who waits, and which objects there are. They are called on
// every scrape, from several goroutines.
type Totals struct {
	Capacity     func() ledger.Totals
	Pending      func() map[Pending]int
	Reservations func() map[string]int // by phase
}

// RegisterTotals adds the metrics of totals. It must be called once.
func (m *Metrics) RegisterTotals(t Totals) {
	m.registerCapacity(t.Capacity)
	pending := gauges("pending_pods", "Pods that were refused capacity and have no node since, by scheduler and the "+
		"reason of the last refusal. The server that decides reports it.", "scheduler", "reason")
	m.register(func(s sums) {
		for of, pods := range t.Pending() {
			s.add(pending, float64(pods), m.schedulers.value(of.Scheduler), of.Reason)
		}
	}, pending)
	reservations := gauges("reservations", "Reservation objects, by phase.", "phase")
	m.register(func(s sums) {
		for phase, count := range t.Reservations() {
			s.add(reservations, float64(count), phase)
		}
	}, reservations)
}

// registerCapacity adds what all nodes have together.
func (m *Metrics) registerCapacity(read func() ledger.Totals) {
	capacity := gauges("capacity", "Capacity of all nodes together, by resource and state, in CPUs, bytes or the "+
		"resource's own unit. States: allocatable; bound, used by pods; reserved, kept by slots or used by binds that are "+
		"under way; free, which counts no node that is overcommitted; overcommitted, used beyond what there is.",
		"resource", "state")
	reserved := gauges("reserved", "Capacity that is kept by slots, or used by binds that are under way, by the "+
		"scheduler it is for, in CPUs, bytes or the resource's own unit.", "scheduler", "resource")
	devices := gauges("devices", "Named devices of all nodes together, by resource and state: used, free, or unusable "+
		"for those that may not be given out.", "resource", "state")
	m.register(func(s sums) {
		t := read()
		for name, total := range t.Amounts {
			resource := m.resources.value(string(name))
			for state, value := range map[string]int64{
				"allocatable": total.Allocatable, "bound": total.Bound, "reserved": total.Reserved, "free": total.Free,
				"overcommitted": total.Overcommitted,
			} {
				s.add(capacity, inUnits(name, value), resource, state)
			}
		}
		for by, value := range t.Reserved {
			s.add(reserved, inUnits(by.Resource, value), m.schedulers.value(by.Scheduler),
				m.resources.value(string(by.Resource)))
		}
		for name, total := range t.Devices {
			resource := m.resources.value(name)
			s.add(devices, float64(total.Used), resource, "used")
			s.add(devices, float64(total.Free), resource, "free")
			s.add(devices, float64(total.All-total.Used-total.Free), resource, "unusable")
		}
	}, capacity, reserved, devices)
}

// inUnits turns an amount of the ledger's into the unit of a metric.
func inUnits(resource v1.ResourceName, value int64) float64 {
	if resource == v1.ResourceCPU {
		return float64(value) / 1e3
	}
	return float64(value)
}

// ObserveBound takes the time from the creation of a pod to when it was seen to have a node.
func (m *Metrics) ObserveBound(scheduler string, took time.Duration) {
	m.timeToBind.WithLabelValues(m.schedulers.value(scheduler)).Observe(max(took, 0).Seconds())
}

// RegisterBuild adds which build this is. It must be called once.
func (m *Metrics) RegisterBuild(release, revision, goVersion string) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "1, labeled with what was built.",
		ConstLabels: prometheus.Labels{"version": release, "revision": revision, "goversion": goVersion},
	})
	info.Set(1)
	m.registry.MustRegister(info)
}
