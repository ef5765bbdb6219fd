package metrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	return w.Body.String()
}

var someTotals = Totals{
	Capacity: func() ledger.Totals {
		return ledger.Totals{
			Amounts: map[v1.ResourceName]*ledger.Total{
				v1.ResourceCPU:    {Allocatable: 4500, Bound: 2000, Reserved: 1000, Free: 2000, Overcommitted: 500},
				v1.ResourceMemory: {Free: 1_024_000_000},
			},
			Reserved: map[ledger.ReservedBy]int64{{Scheduler: "batch", Resource: v1.ResourceCPU}: 1000},
			Devices:  map[string]*ledger.DeviceTotal{"example.com/gpu": {All: 8, Used: 4, Free: 1}},
		}
	},
	Pending:      func() map[Pending]int { return map[Pending]int{{"batch", "InsufficientResource"}: 2} },
	Reservations: func() map[string]int { return map[string]int{"Pending": 6} },
}

// TestScrape pins the names and labels of all metrics: dashboards and alerts are built on them.
func TestScrape(t *testing.T) {
	m := New()
	assert.NotContains(t, scrape(t, m), "globalreserve_nodes", "no ledger, no allocation about it")
	nodes := 1
	m.RegisterLedger(func() ledger.Stats {
		return ledger.Stats{InMemory: 7, InMemoryExpired: 3, Nodes: nodes, OvercommittedNodes: 1}
	})
	assert.Contains(t, scrape(t, m), "globalreserve_nodes 1\n")
	nodes = 5
	m.ObserveRequest("filter", 200, 70*time.Microsecond)
	m.ObserveDecision("bind", "default-scheduler", "granted")
	m.ObserveConflict("batch", "cpu")
	m.ObserveBypassedBind("rogue")
	m.ObserveBindOutcome("bound")
	m.ObserveWakeup()
	m.ObserveVainWakeup()
	m.SetDrift("missing_pod", 4)
	m.PolicyLoaded(time.Unix(100, 5e8))
	m.PolicyReloadFailed()
	m.RegisterWatches(func() map[string]time.Duration { return map[string]time.Duration{"pods": 1500 * time.Millisecond} })

	m.ObserveRepeat("eager", "InsufficientResource")
	m.ObserveGangRefusal("GangWaits")
	m.ObserveRedirect("eager")
	m.ObserveGangBinding(false)
	m.ObserveGangBinding(true)
	m.ObserveGangBinding(true)
	m.RegisterGangs(
		func() map[string]int { return map[string]int{"Whole": 12, "Short": 0} },
		func() time.Duration { return 2500 * time.Millisecond })
	m.RegisterRefused(map[string]func() int64{"Rate": func() int64 { return 9 }})
	m.RegisterElection(true, func() bool { return true }, func() bool { return false }, func() float64 { return 7 })
	m.RegisterForwarding(func() float64 { return 3 }, func() float64 { return 2 })
	m.RegisterResourceClaims(func() int { return 8 }, func() int { return 9 })

	m.ObserveBound("batch", 3*time.Second)
	m.RegisterTotals(someTotals)
	m.RegisterBuild("v1.2.3", "abc", "go1.26")

	got := scrape(t, m)
	for _, line := range []string{
		`globalreserve_capacity{resource="cpu",state="allocatable"} 4.5`,
		`globalreserve_capacity{resource="cpu",state="bound"} 2`,
		`globalreserve_capacity{resource="cpu",state="reserved"} 1`,
		`globalreserve_capacity{resource="cpu",state="free"} 2`,
		`globalreserve_capacity{resource="cpu",state="overcommitted"} 0.5`,
		`globalreserve_capacity{resource="memory",state="free"} 1.024e+09`,
		`globalreserve_reserved{resource="cpu",scheduler="batch"} 1`,
		`globalreserve_devices{resource="example.com/gpu",state="free"} 1`,
		`globalreserve_devices{resource="example.com/gpu",state="used"} 4`,
		`globalreserve_devices{resource="example.com/gpu",state="unusable"} 3`,
		`globalreserve_pending_pods{reason="InsufficientResource",scheduler="batch"} 2`,
		`globalreserve_reservations{phase="Pending"} 6`,
		`globalreserve_build_info{goversion="go1.26",revision="abc",version="v1.2.3"} 1`,
		`globalreserve_time_to_bind_seconds_bucket{scheduler="batch",le="2"} 0`,
		`globalreserve_time_to_bind_seconds_bucket{scheduler="batch",le="5"} 1`,
		`globalreserve_refused_requests_total{reason="Rate"} 9`,
		`globalreserve_gangs{state="Short"} 0`,
		`globalreserve_gangs{state="Whole"} 12`,
		`globalreserve_half_gang_seconds_total 2.5`,
		`globalreserve_repeated_bindings_total{reason="InsufficientResource",scheduler="eager"} 1`,
		`globalreserve_redirected_bindings_total{scheduler="eager"} 1`,
		`globalreserve_gang_refusals_total{reason="GangWaits"} 1`,
		`globalreserve_gang_bindings_total{result="failed"} 2`,
		`globalreserve_gang_bindings_total{result="bound"} 1`,
		`globalreserve_requests_total{code="200",verb="filter"} 1`,
		`globalreserve_request_duration_seconds_bucket{verb="filter",le="5e-05"} 0`,
		`globalreserve_request_duration_seconds_bucket{verb="filter",le="0.0001"} 1`,
		`globalreserve_request_duration_seconds_bucket{verb="filter",le="10"} 1`,
		`globalreserve_decisions_total{result="granted",scheduler="default-scheduler",verb="bind"} 1`,
		`globalreserve_conflicts_total{resource="cpu",scheduler="batch"} 1`,
		`globalreserve_allocations{state="Binding"} 0`,
		`globalreserve_slots_in_memory 7`,
		`globalreserve_allocations{state="Bound"} 0`,
		`globalreserve_nodes 5`,
		`globalreserve_overcommitted_nodes 1`,
		`globalreserve_bypassed_binds_total{scheduler="rogue"} 1`,
		`globalreserve_bind_outcomes_total{outcome="bound"} 1`,
		`globalreserve_wakeups_total 1`,
		`globalreserve_wakeups_in_vain_total 1`,
		`globalreserve_reservations_expired_total 3`,
		`globalreserve_ledger_drift{kind="missing_pod"} 4`,
		`globalreserve_ledger_drift_found_total{kind="missing_pod"} 4`,
		`globalreserve_policy_last_reload_success_timestamp_seconds 100.5`,
		`globalreserve_policy_reload_failures_total 1`,
		`globalreserve_watch_age_seconds{kind="pods"} 1.5`,
		`globalreserve_leader 1`,
		`globalreserve_observing 1`,
		`globalreserve_fence_up 0`,
		`globalreserve_term 7`,
		`globalreserve_forward_held_total 3`,
		`globalreserve_forward_unknown_total 2`,
		`globalreserve_dra_double_devices 8`,
		`globalreserve_dra_unbound_claims 9`,
	} {
		assert.Contains(t, got, line+"\n")
	}
	assert.Contains(t, got, "go_goroutines ")
	assert.Contains(t, got, "process_start_time_seconds ")
	problems, err := testutil.GatherAndLint(m.Gatherer())
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// TestClientLabelsAreBounded plays a client that invents a scheduler name per request.
func TestClientLabelsAreBounded(t *testing.T) {
	m := New()
	totals := ledger.Totals{
		Amounts:  map[v1.ResourceName]*ledger.Total{},
		Reserved: map[ledger.ReservedBy]int64{}, Devices: map[string]*ledger.DeviceTotal{},
	}
	pending := map[Pending]int{}
	for i := range 10 * maxClientLabels {
		name := fmt.Sprintf("scheduler-%d", i)
		resource := "example.com/" + name
		m.ObserveDecision("filter", name, "granted")
		m.ObserveConflict(name, resource)
		m.ObserveObservedConflict(name, resource)
		m.ObserveBypassedBind(name)
		m.ObserveLimit(name, "CallerLimit")
		m.ObserveRepeat(name, "InsufficientResource")
		m.ObserveBound(name, time.Second)
		totals.Amounts[v1.ResourceName(resource)] = &ledger.Total{}
		totals.Reserved[ledger.ReservedBy{Scheduler: name, Resource: v1.ResourceName(resource)}] = 1
		totals.Devices[resource] = &ledger.DeviceTotal{}
		pending[Pending{name, "InsufficientResource"}] = 1
	}
	m.RegisterTotals(Totals{
		Capacity:     func() ledger.Totals { return totals },
		Pending:      func() map[Pending]int { return pending },
		Reservations: func() map[string]int { return nil },
	})
	for family, each := range map[string]int{
		"decisions_total": 1, "bypassed_binds_total": 1, "conflicts_total": 1, "observed_conflicts_total": 1,
		"limit_refusals_total": 1, "repeated_bindings_total": 1, "time_to_bind_seconds": 1, "reserved": 1, "pending_pods": 1,
		"capacity": 5, "devices": 3,
	} {
		assert.Equal(t, each*(maxClientLabels+1), count(t, m, "globalreserve_"+family), family)
	}

	m.KeepSchedulers("configured", "\xff", "scheduler-0")
	m.ObserveDecision("filter", "configured", "granted")
	assert.Contains(t, scrape(t, m), `scheduler="configured"`)
}

// Who alerts on an increase has something to compare the first bypassed bind with.
func TestBypassedBindsAreThereFromTheStart(t *testing.T) {
	m := New()
	assert.Contains(t, scrape(t, m), `globalreserve_bypassed_binds_total{scheduler="other"} 0`)
	m.KeepSchedulers("batch")
	assert.Contains(t, scrape(t, m), `globalreserve_bypassed_binds_total{scheduler="batch"} 0`)
}

func TestLabelValue(t *testing.T) {
	tests := map[string]struct{ name, want string }{
		"scheduler":           {"default-scheduler", "default-scheduler"},
		"resource":            {"nvidia.com/gpu", "nvidia.com/gpu"},
		"empty":               {"", other},
		"invalid UTF-8":       {"a\xff", other},
		"NUL":                 {"a\x00b", other},
		"line feed":           {"a\nb", other},
		"not ASCII":           {"schéma 1", "schéma 1"},
		"longer than a name":  {strings.Repeat("a", maxLabelLength+1), other},
		"as long as a name":   {strings.Repeat("a", maxLabelLength), strings.Repeat("a", maxLabelLength)},
		"exposition injected": {"x\"}\n1", other},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLabel(1)
			assert.Equal(t, tt.want, l.value(tt.name))
			assert.Equal(t, tt.want, l.value(tt.name), "the same answer again")
		})
	}
}

func TestConcurrentUseLosesNothing(t *testing.T) {
	const workers, each = 8, 200
	m := New()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				m.ObserveDecision("filter", fmt.Sprintf("s-%d", (w+i)%150), "granted")
			}
		})
	}
	wg.Wait()
	total := 0.0
	families, err := m.Gatherer().Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "globalreserve_decisions_total" {
			for _, s := range f.GetMetric() {
				total += s.GetCounter().GetValue()
			}
		}
	}
	assert.InDelta(t, workers*each, total, 0)
}

func count(t *testing.T, m *Metrics, name string) int {
	t.Helper()
	n, err := testutil.GatherAndCount(m.Gatherer(), name)
	require.NoError(t, err)
	return n
}
