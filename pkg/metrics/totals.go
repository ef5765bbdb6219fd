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

var (
	capacityDesc = prometheus.NewDesc(namespace+"_capacity",
		"Capacity of all nodes together, by resource and state, in CPUs, bytes or the resource's own unit. States: "+
			"allocatable; bound, used by pods; reserved, kept by slots or used by binds that are under way; free, which "+
			"counts no node that is overcommitted; overcommitted, used beyond what there is.",
		[]string{"resource", "state"}, nil)
	reservedDesc = prometheus.NewDesc(namespace+"_reserved",
		"Capacity that is kept by slots, or used by binds that are under way, by the scheduler it is for, in CPUs, bytes "+
			"or the resource's own unit.",
		[]string{"scheduler", "resource"}, nil)
	devicesDesc = prometheus.NewDesc(namespace+"_devices",
		"Named devices of all nodes together, by resource and state: used, free, or unusable for those that may not be "+
			"given out.",
		[]string{"resource", "state"}, nil)
	pendingDesc = prometheus.NewDesc(namespace+"_pending_pods",
		"Pods that were refused capacity and have no node since, by scheduler and the reason of the last refusal. The "+
			"server that decides tells.",
		[]string{"scheduler", "reason"}, nil)
	reservationsDesc = prometheus.NewDesc(namespace+"_reservations",
		"Reservation objects, by phase.", []string{"phase"}, nil)
)

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
func (m *Metrics) RegisterTotals(t Totals) { m.registry.MustRegister(totalsCollector{m, t}) }

// totalsCollector reads totals at the moment of the scrape.
type totalsCollector struct {
	metrics *Metrics
	of      Totals
}

// Describe implements prometheus.Collector.
func (c totalsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{capacityDesc, reservedDesc, devicesDesc, pendingDesc, reservationsDesc} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c totalsCollector) Collect(ch chan<- prometheus.Metric) {
	t := c.of.Capacity()
	capacity, reserved, devices, pending := newSums(capacityDesc), newSums(reservedDesc), newSums(devicesDesc),
		newSums(pendingDesc)
	for name, total := range t.Amounts {
		resource := c.metrics.resources.value(string(name))
		for state, value := range map[string]int64{
			"allocatable": total.Allocatable, "bound": total.Bound, "reserved": total.Reserved, "free": total.Free,
			"overcommitted": total.Overcommitted,
		} {
			capacity.add(inUnits(name, value), resource, state)
		}
	}
	for by, value := range t.Reserved {
		reserved.add(inUnits(by.Resource, value), c.metrics.schedulers.value(by.Scheduler),
			c.metrics.resources.value(string(by.Resource)))
	}
	for name, total := range t.Devices {
		resource := c.metrics.resources.value(name)
		devices.add(float64(total.Used), resource, "used")
		devices.add(float64(total.Free), resource, "free")
		devices.add(float64(total.All-total.Used-total.Free), resource, "unusable")
	}
	for of, pods := range c.of.Pending() {
		pending.add(float64(pods), c.metrics.schedulers.value(of.Scheduler), of.Reason)
	}
	for _, s := range []sums{capacity, reserved, devices, pending} {
		s.collect(ch)
	}
	for phase, count := range c.of.Reservations() {
		ch <- prometheus.MustNewConstMetric(reservationsDesc, prometheus.GaugeValue, float64(count), phase)
	}
}

// inUnits turns an amount of the ledger's into the unit of a metric.
func inUnits(resource v1.ResourceName, value int64) float64 {
	if resource == v1.ResourceCPU {
		return float64(value) / 1e3
	}
	return float64(value)
}

// sums are gauges with two labels, where several of what there is share the label "other".
type sums struct {
	desc *prometheus.Desc
	by   map[[2]string]float64
}

func newSums(desc *prometheus.Desc) sums { return sums{desc, map[[2]string]float64{}} }

func (s sums) add(value float64, first, second string) { s.by[[2]string{first, second}] += value }

func (s sums) collect(ch chan<- prometheus.Metric) {
	for labels, value := range s.by {
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, value, labels[:]...)
	}
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
