// Package metrics holds every Prometheus metric of the GlobalReserve server. pkg/app makes one Metrics and hands it to
// the packages that report.
//
// The names are a promise to dashboards and alerts: add metrics, never rename them.
//
// Two rules keep a scrape true and cheap. Gauges that mirror the ledger are read from it at the moment of the scrape
// and never counted up and down beside it. Label values that come from clients are bounded (see the label type), so
// that nobody can fill the server's memory by inventing scheduler names.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const namespace = "globalreserve"

// maxClientLabels is how many different scheduler names, and how many resource names, get series of their own.
const maxClientLabels = 100

// maxScrapes bounds how many scrapes are answered at the same time.
const maxScrapes = 4

// durationBuckets are in seconds: from 50 microseconds, a filter call on a small cluster, to 10
// seconds, far beyond kube-scheduler's own limit for an extender call.
var durationBuckets = []float64{
	50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
}

// Metrics is the set of all collectors on a registry of its own. All methods are safe for
// concurrent use, and those that record a decision do not allocate once a series exists.
type Metrics struct {
	registry *prometheus.Registry

	requests      *prometheus.CounterVec
	durations     *prometheus.HistogramVec
	timeToBind    *prometheus.HistogramVec
	decisions     *prometheus.CounterVec
	conflicts     *prometheus.CounterVec
	limits        *prometheus.CounterVec
	repeats       *prometheus.CounterVec
	redirects     *prometheus.CounterVec
	gangRefusals  *prometheus.CounterVec
	gangBindings  *prometheus.CounterVec
	bypassedBinds *prometheus.CounterVec
	observed      *prometheus.CounterVec
	bindOutcomes  *prometheus.CounterVec
	drift         *prometheus.GaugeVec
	driftFound    *prometheus.CounterVec
	wakeups       prometheus.Counter
	vainWakeups   prometheus.Counter
	reloadFailed  prometheus.Counter
	reloadedAt    prometheus.Gauge
	autoscaling   *prometheus.CounterVec

	schedulers *label
	resources  *label
}

// New makes the collectors, those of the Go runtime and of the process included. The Register methods add what is read
// at a scrape.
func New() *Metrics {
	m := &Metrics{
		registry:   prometheus.NewRegistry(),
		schedulers: newLabel(maxClientLabels),
		resources:  newLabel(maxClientLabels),
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.requests = m.counterVec("requests_total", "HTTP requests answered, by verb and status code.", "verb", "code")
	m.durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "request_duration_seconds",
		Help: "Time taken to answer an HTTP request, by verb.", Buckets: durationBuckets,
	}, []string{"verb"})
	m.timeToBind = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "time_to_bind_seconds",
		Help: "Time from a pod's creation to when it was seen bound, to the second, by scheduler. The server that decides " +
			"reports it.", Buckets: timeToBindBuckets,
	}, []string{"scheduler"})
	m.decisions = m.counterVec("decisions_total",
		"Decisions made on pods, by verb, scheduler and result.", "verb", "scheduler", "result")
	m.conflicts = m.counterVec("conflicts_total",
		"Reservations refused because the capacity was already taken, by scheduler and what was short: a resource, "+
			"hostPort, antiAffinity, or unlisted for one that nothing offers.",
		"scheduler", "resource")
	m.limits = m.counterVec("limit_refusals_total",
		"Pods and reservations refused because a namespace or a scheduler had reached a limit, by scheduler and reason: "+
			"QuotaExceeded, ReservedLimit, SlotLimit or CallerLimit.",
		"scheduler", "reason")
	m.repeats = m.counterVec("repeated_bindings_total",
		"Bindings that the admission webhook refused within a minute of refusing the same before, by scheduler and "+
			"reason: it tries the same node again and again.",
		"scheduler", "reason")
	m.addGangs()
	m.bypassedBinds = m.counterVec("bypassed_binds_total",
		"Pods found bound to a node without an allocation made before, by scheduler.", "scheduler")
	m.bypassedBinds.WithLabelValues(other) // or alerts on an increase would miss the first
	m.observed = m.counterVec("observed_conflicts_total",
		"Pods that got a node although the capacity was taken, seen by a server that only observes (--observe), by "+
			"scheduler and what was short.",
		"scheduler", "resource")
	m.bindOutcomes = m.counterVec("bind_outcomes_total",
		"Bindings sent to the API server, by outcome.", "outcome")
	m.autoscaling = m.counterVec("autoscaling_writes_total",
		"Writes for cluster autoscalers, by kind, Node, Pod or ProvisioningRequest, and result: written or failed.", "kind",
		"result")
	m.wakeups = m.counter("wakeups_total",
		"Pending pods that were woken up because capacity became free that no cluster event announces.")
	m.vainWakeups = m.counter("wakeups_in_vain_total",
		"Wake-ups after which GlobalReserve refused the pod all nodes again.")
	m.reloadFailed = m.counter("policy_reload_failures_total",
		"Reloads of the policy file that failed; the policy before stayed in force.")
	m.reloadedAt = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "policy_last_reload_success_timestamp_seconds",
		Help: "Unix time at which the policy in force was loaded.",
	})
	m.addDrift()
	m.registry.MustRegister(m.durations, m.timeToBind, m.reloadedAt)
	return m
}

// addGangs makes the collectors about gangs.
func (m *Metrics) addGangs() {
	m.gangRefusals = m.counterVec("gang_refusals_total",
		"Times that a pod was refused for the sake of its gang, by reason: GangUnplaced, GangIncomplete or GangWaits.",
		"reason")
	m.redirects = m.counterVec("redirected_bindings_total",
		"Bindings that the admission webhook had go to the node where capacity was kept for the pod, as the one they "+
			"named had none, by scheduler.",
		"scheduler")
	m.gangBindings = m.counterVec("gang_bindings_total",
		"Pods of gangs that the server bound on its own account, as their scheduler did not bind the rest of the gang, by "+
			"result: bound or failed.",
		"result")
	m.gangBindings.WithLabelValues("bound") // or alerts on an increase would miss the first
	m.gangBindings.WithLabelValues("failed")
}

// addDrift makes the collectors about comparisons with the cluster.
func (m *Metrics) addDrift() {
	m.drift = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "ledger_drift",
		Help: "Differences between the ledger and the cluster found by the last comparison, by kind. One that stays could " +
			"not be repaired; the log has each.",
	}, []string{"kind"})
	m.driftFound = m.counterVec("ledger_drift_found_total",
		"Differences between the ledger and the cluster found by all comparisons, by kind.", "kind")
	m.registry.MustRegister(m.drift)
}

// Handler serves the metrics in the Prometheus exposition formats.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry:            m.registry,
		MaxRequestsInFlight: maxScrapes,
	})
}

// Gatherer gives read access to the registry, for tests and tools.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}
