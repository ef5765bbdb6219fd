package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// family is a metric that is read where it is kept, at the moment of the scrape. It has two labels at most.
type family struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	labels int
}

func gauges(name, help string, labels ...string) *family {
	return newFamily(prometheus.GaugeValue, name, help, labels)
}

func counters(name, help string, labels ...string) *family {
	return newFamily(prometheus.CounterValue, name, help, labels)
}

func newFamily(kind prometheus.ValueType, name, help string, labels []string) *family {
	return &family{prometheus.NewDesc(namespace+"_"+name, help, labels, nil), kind, len(labels)}
}

// series is one combination of labels of a family.
type series struct {
	of     *family
	labels [2]string
}

// sums are what was read. Values of the same series are added up, as several may share the label "other".
type sums map[series]float64

func (s sums) add(of *family, value float64, labels ...string) {
	key := series{of: of}
	copy(key.labels[:], labels)
	s[key] += value
}

// collector reads families together.
type collector struct {
	families []*family
	read     func(sums)
}

// register calls read on every scrape, from several goroutines. read has to be quick.
func (m *Metrics) register(read func(sums), families ...*family) {
	m.registry.MustRegister(collector{families, read})
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.families {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	read := sums{}
	c.read(read)
	for of, value := range read {
		ch <- prometheus.MustNewConstMetric(of.of.desc, of.of.kind, value, of.labels[:of.of.labels]...)
	}
}

// registerOne reads the one value of a family on every scrape.
func registerOne[N int | int64 | float64](m *Metrics, f *family, read func() N) {
	m.register(func(s sums) { s.add(f, float64(read())) }, f)
}

// RegisterLedger makes stats the source of the ledger's metrics. It must be called once.
func (m *Metrics) RegisterLedger(stats func() ledger.Stats) {
	allocations := gauges("allocations", "Allocations in the ledger, by state.", "state")
	inMemory := gauges("slots_in_memory", "Slots that only the server's memory has, each for one pod.")
	expired := counters("reservations_expired_total",
		"Reservations in memory that ended at their deadline because their pod was never bound.")
	nodes := gauges("nodes", "Nodes in the ledger.")
	overcommitted := gauges("overcommitted_nodes", "Nodes on which more is used than is allocatable, because pods were "+
		"bound or capacity shrank without asking.")
	m.register(func(s sums) {
		now := stats()
		for _, state := range []ledger.State{ledger.Binding, ledger.Bound} {
			s.add(allocations, float64(now.Allocations[state]), state.String())
		}
		s.add(inMemory, float64(now.InMemory))
		s.add(expired, float64(now.InMemoryExpired))
		s.add(nodes, float64(now.Nodes))
		s.add(overcommitted, float64(now.OvercommittedNodes))
	}, allocations, inMemory, expired, nodes, overcommitted)
}

// RegisterWatches adds the age of the latest news of each kind of object, which ages returns.
func (m *Metrics) RegisterWatches(ages func() map[string]time.Duration) {
	age := gauges("watch_age_seconds",
		"Time since anything was heard of a kind of object from the API server, which says something each minute. From 90 "+
			"on what depends on it waits, or is decided on old news: see the alert GlobalReserveStaleWatch.", "kind")
	m.register(func(s sums) {
		for kind, heard := range ages() {
			s.add(age, heard.Seconds(), kind)
		}
	}, age)
}

// RegisterGangs adds how many gangs are in each state, and for how long gangs have been half, all
// together. It must be called once.
func (m *Metrics) RegisterGangs(states func() map[string]int, half func() time.Duration) {
	gangs := gauges("gangs",
		"Gangs, by state: Incomplete, Waiting, Starting, Short or Whole. The server that decides reports it.", "state")
	m.register(func(s sums) {
		for state, count := range states() {
			s.add(gangs, float64(count), state)
		}
	}, gangs)
	registerOne(m, counters("half_gang_seconds_total", "Time that gangs have spent with some of their pods bound and "+
		"fewer than they need, since this server decided on them first."), func() float64 { return half().Seconds() })
}

// RegisterElection adds what is known of the election: whether this server decides, whether the API server refuses what
// a server before it sends, and its term, 0 before it decides. It must be called once.
func (m *Metrics) RegisterElection(observes bool, leads, fenced func() bool, term func() float64) {
	number := func(is func() bool) func() int {
		return func() int {
			if is() {
				return 1
			}
			return 0
		}
	}
	registerOne(m, gauges("leader", "Whether this server is the one that decides: 1 or 0."), number(leads))
	registerOne(m, gauges("observing", "Whether this server only observes and refuses nothing (--observe): 1 or 0."),
		number(func() bool { return observes }))
	registerOne(m, gauges("fence_up", "Whether the API server was seen to refuse what an earlier server sends, when this "+
		"one took over: 1 or 0."), number(fenced))
	registerOne(m, gauges("term", "The term in which this server decides, or decided last."), term)
}

// RegisterForwarding adds what became of requests that this server passed on, or was to pass on: how many have waited
// for a server that decides, and how many got no answer. It must be called once.
func (m *Metrics) RegisterForwarding(held, unknown func() float64) {
	registerOne(m, counters("forward_held_total",
		"Requests that waited because no server decided, or could be asked."), held)
	registerOne(m, counters("forward_unknown_total", "Requests passed on to the server that decides of which it is not "+
		"known what was done, because no answer came."), unknown)
}

// RegisterResourceClaims adds what is known of DRA devices: of how many more is allocated than there is, and how many
// claims keep some for pods that are not bound. It must be called once.
func (m *Metrics) RegisterResourceClaims(doubles, unbound func() int) {
	registerOne(m, gauges("dra_double_devices",
		"DRA devices, and counters of pools, of which more is allocated to ResourceClaims than there is."), doubles)
	registerOne(m, gauges("dra_unbound_claims",
		"ResourceClaims that have had devices for 10 seconds and more, for pods that are not bound."), unbound)
}

// RegisterAutoscaling adds how many nodes are annotated against being removed by autoscalers. It must be called once.
func (m *Metrics) RegisterAutoscaling(protected func() int) {
	registerOne(m, gauges("protected_nodes", "Nodes that are annotated against being removed by autoscalers, because "+
		"reservations keep unused capacity there."), protected)
}

// RegisterIntake adds the memory that requests have at present. It must be called once.
func (m *Metrics) RegisterIntake(used func() int64) {
	registerOne(m, gauges("request_memory_bytes", "Memory of request bodies and of answers that are being sent."), used)
}

// RegisterRefused adds how many requests were refused because of how much their callers ask for, by reason. It must be
// called once.
func (m *Metrics) RegisterRefused(reasons map[string]func() int64) {
	refused := counters("refused_requests_total", "Requests answered with 429 because of how much their callers ask for, "+
		"by reason: Rate, InFlight, or Reviews, which are questions to the API server.", "reason")
	m.register(func(s sums) {
		for reason, read := range reasons {
			s.add(refused, float64(read()), reason)
		}
	}, refused)
}
