package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// LedgerStats is what the ledger holds at one moment.
type LedgerStats struct {
	// Allocations is the number of allocations in each state; states without allocations are listed with 0.
	Allocations map[string]int
	// ReservationsExpired is how many reservations in memory have ended at their deadline so far.
	ReservationsExpired uint64
	// Nodes is the number of nodes known.
	Nodes int
	// OvercommittedNodes is the number of nodes on which more is used than is allocatable.
	OvercommittedNodes int
}

// RegisterLedger makes stats the source of the ledger's metrics. It is called on every scrape, from
// several goroutines, and has to be quick. A later call replaces the source.
func (m *Metrics) RegisterLedger(stats func() LedgerStats) {
	m.ledger.Store(&stats)
}

var (
	allocationsDesc = prometheus.NewDesc(namespace+"_allocations",
		"Allocations in the ledger, by state.", []string{"state"}, nil)
	expiredDesc = prometheus.NewDesc(namespace+"_reservations_expired_total",
		"Reservations in memory that ended at their deadline because their pod was never bound.", nil, nil)
	nodesDesc = prometheus.NewDesc(namespace+"_nodes",
		"Nodes in the ledger.", nil, nil)
	overcommittedDesc = prometheus.NewDesc(namespace+"_overcommitted_nodes",
		"Nodes on which more is used than is allocatable, because pods were bound or capacity shrank without asking.", nil, nil)
)

// ledgerCollector reads the ledger at the moment of the scrape.
type ledgerCollector struct {
	stats *atomic.Pointer[func() LedgerStats]
}

// Describe implements prometheus.Collector.
func (c ledgerCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- allocationsDesc
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
	for state, n := range stats.Allocations {
		ch <- prometheus.MustNewConstMetric(allocationsDesc, prometheus.GaugeValue, float64(n), state)
	}
	ch <- prometheus.MustNewConstMetric(expiredDesc, prometheus.CounterValue, float64(stats.ReservationsExpired))
	ch <- prometheus.MustNewConstMetric(nodesDesc, prometheus.GaugeValue, float64(stats.Nodes))
	ch <- prometheus.MustNewConstMetric(overcommittedDesc, prometheus.GaugeValue, float64(stats.OvercommittedNodes))
}
