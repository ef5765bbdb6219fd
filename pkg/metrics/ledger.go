package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// RegisterLedger makes stats the source of the ledger's metrics. It is called on every scrape, from
// several goroutines, and has to be quick. A later call replaces the source.
func (m *Metrics) RegisterLedger(stats func() ledger.Stats) {
	m.ledger.Store(&stats)
}

// RegisterWatches has the scrape tell, by ages, how long ago anything was heard of each kind of object.
func (m *Metrics) RegisterWatches(ages func() map[string]time.Duration) {
	m.registry.MustRegister(watchCollector(ages))
}

var watchAgeDesc = prometheus.NewDesc(namespace+"_watch_age_seconds",
	"Time since anything was heard of a kind of object from the API server, which says something each minute. From 90 "+
		"on what depends on it waits, or is decided on old news: see the alert GlobalReserveStaleWatch.",
	[]string{"kind"}, nil)

// watchCollector reads the ages of watches at the moment of the scrape.
type watchCollector func() map[string]time.Duration

// Describe implements prometheus.Collector.
func (c watchCollector) Describe(ch chan<- *prometheus.Desc) { ch <- watchAgeDesc }

// Collect implements prometheus.Collector.
func (c watchCollector) Collect(ch chan<- prometheus.Metric) {
	for kind, age := range c() {
		ch <- prometheus.MustNewConstMetric(watchAgeDesc, prometheus.GaugeValue, age.Seconds(), kind)
	}
}

var gangsDesc = prometheus.NewDesc(namespace+"_gangs",
	"Gangs, by state: Incomplete, Waiting, Starting, Short or Whole. The server that decides tells.", []string{"state"},
	nil)

// RegisterGangs has the scrape tell how many gangs are in each state, and for how long gangs have been half, all
// together. They are called on every scrape. It must be called once.
func (m *Metrics) RegisterGangs(states func() map[string]int, half func() time.Duration) {
	m.registry.MustRegister(gangCollector(states), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: namespace, Name: "half_gang_seconds_total",
		Help: "Time that gangs have spent with some of their pods bound and fewer than they need, since this server " +
			"decided on them first.",
	}, func() float64 { return half().Seconds() }))
}

// gangCollector counts gangs by state at the moment of the scrape.
type gangCollector func() map[string]int

// Describe implements prometheus.Collector.
func (c gangCollector) Describe(ch chan<- *prometheus.Desc) { ch <- gangsDesc }

// Collect implements prometheus.Collector.
func (c gangCollector) Collect(ch chan<- prometheus.Metric) {
	for state, count := range c() {
		ch <- prometheus.MustNewConstMetric(gangsDesc, prometheus.GaugeValue, float64(count), state)
	}
}

var (
	allocationsDesc = prometheus.NewDesc(namespace+"_allocations",
		"Allocations in the ledger, by state.", []string{"state"}, nil)
	slotsInMemoryDesc = prometheus.NewDesc(namespace+"_slots_in_memory",
		"Slots that only the server's memory has, each for one pod.", nil, nil)
	expiredDesc = prometheus.NewDesc(namespace+"_reservations_expired_total",
		"Reservations in memory that ended at their deadline because their pod was never bound.", nil, nil)
	nodesDesc = prometheus.NewDesc(namespace+"_nodes",
		"Nodes in the ledger.", nil, nil)
	overcommittedDesc = prometheus.NewDesc(namespace+"_overcommitted_nodes",
		"Nodes on which more is used than is allocatable, because pods were bound or capacity shrank without asking.", nil,
		nil)
)

// ledgerCollector reads the ledger at the moment of the scrape.
type ledgerCollector struct {
	stats *atomic.Pointer[func() ledger.Stats]
}

// Describe implements prometheus.Collector.
func (c ledgerCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- allocationsDesc
	ch <- slotsInMemoryDesc
	ch <- expiredDesc
	ch <- nodesDesc
	ch <- overcommittedDesc
}

// Collect implements prometheus.Collector.
func (c ledgerCollector) Collect(ch chan<- prometheus.Metric) {
	read := c.stats.Load()
	if read == nil {
		return
	}
	stats := (*read)()
	for _, state := range []ledger.State{ledger.Binding, ledger.Bound} {
		ch <- prometheus.MustNewConstMetric(allocationsDesc, prometheus.GaugeValue, float64(stats.Allocations[state]),
			state.String())
	}
	ch <- prometheus.MustNewConstMetric(slotsInMemoryDesc, prometheus.GaugeValue, float64(stats.InMemory))
	ch <- prometheus.MustNewConstMetric(expiredDesc, prometheus.CounterValue, float64(stats.InMemoryExpired))
	ch <- prometheus.MustNewConstMetric(nodesDesc, prometheus.GaugeValue, float64(stats.Nodes))
	ch <- prometheus.MustNewConstMetric(overcommittedDesc, prometheus.GaugeValue, float64(stats.OvercommittedNodes))
}
