package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// metricsPage has all metrics of the server, each from one series of it.
func metricsPage() (string, error) {
	m := metrics.New()
	register(m)
	observe(m)
	families, err := m.Gatherer().Gather()
	if err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString("# Metrics\n\n[Which to look at first](../monitoring.md). Beside these there are those of the Go " +
		"runtime (`go_`) and of the process (`process_`).\n\n")
	page.WriteString(table("metric", "type", "labels", "is"))
	known := map[string]bool{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "globalreserve_") {
			continue
		}
		known[family.GetName()] = true
		labels := map[string]bool{}
		for _, pair := range family.GetMetric()[0].GetLabel() {
			labels["`"+pair.GetName()+"`"] = true
		}
		page.WriteString(row("`"+family.GetName()+"`", strings.ToLower(family.GetType().String()),
			strings.Join(slices.Sorted(maps.Keys(labels)), " "), cell(family.GetHelp())))
	}
	return page.String(), complete(m, known)
}

// complete fails where a metric has no series, so that it would be missing.
func complete(m *metrics.Metrics, known map[string]bool) error {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		m.Gatherer().(*prometheus.Registry).Describe(descriptions)
	}()
	var err error
	for description := range descriptions {
		_, name, _ := strings.Cut(description.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		if strings.HasPrefix(name, "globalreserve_") && !known[name] {
			err = fmt.Errorf("%s has no series: observe one in test/reference/metrics.go", name)
		}
	}
	return err
}

// register has all that is read at a scrape.
func register(m *metrics.Metrics) {
	zero, yes := func() float64 { return 0 }, func() bool { return true }
	none := func() int { return 0 }
	m.RegisterLedger(func() ledger.Stats { return ledger.Stats{} })
	m.RegisterElection(false, yes, yes, zero)
	m.RegisterForwarding(zero, zero)
	m.RegisterResourceClaims(none, none)
	m.RegisterAutoscaling(none)
	m.RegisterIntake(func() int64 { return 0 })
	m.RegisterRefused(map[string]func() int64{"Rate": func() int64 { return 0 }})
	m.RegisterWatches(func() map[string]time.Duration { return map[string]time.Duration{"pods": 0} })
	m.RegisterGangs(func() map[string]int { return map[string]int{"Whole": 0} }, func() time.Duration { return 0 })
	m.RegisterBuild("v", "r", "g")
	m.RegisterTotals(metrics.Totals{
		Capacity: func() ledger.Totals {
			return ledger.Totals{
				Amounts:  map[v1.ResourceName]*ledger.Total{v1.ResourceCPU: {}},
				Reserved: map[ledger.ReservedBy]int64{{Scheduler: "s", Resource: v1.ResourceCPU}: 0},
				Devices:  map[string]*ledger.DeviceTotal{"d": {}},
			}
		},
		Pending:      func() map[metrics.Pending]int { return map[metrics.Pending]int{{Scheduler: "s", Reason: "r"}: 0} },
		Reservations: func() map[string]int { return map[string]int{"Pending": 0} },
	})
}

// observe has one series of all that is counted.
func observe(m *metrics.Metrics) {
	m.ObserveRequest("filter", 200, 0)
	m.ObserveBound("s", 0)
	m.ObserveDecision("bind", "s", "granted")
	m.ObserveConflict("s", "cpu")
	m.ObserveLimit("s", "QuotaExceeded")
	m.ObserveRepeat("s", "r")
	m.ObserveRedirect("s")
	m.ObserveGangRefusal("GangWaits")
	m.ObserveGangBinding(false)
	m.ObserveObservedConflict("s", "cpu")
	m.ObserveBindOutcome("bound")
	m.ObserveAutoscalingWrite("Node", false)
	m.SetDrift("pod", 1)
}
