// Package metricstest reads metrics, for tests.
package metricstest

import (
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// Counted returns the sum of the counters of a name, which is without the prefix, that have all of the values as
// labels. It is 0 also where there is no such counter.
func Counted(t testing.TB, m *metrics.Metrics, name string, values ...string) (sum int) {
	t.Helper()
	families, err := m.Gatherer().Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != "globalreserve_"+name {
			continue
		}
		for _, one := range family.GetMetric() {
			lacks := func(value string) bool {
				return !slices.ContainsFunc(one.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == value })
			}
			if !slices.ContainsFunc(values, lacks) {
				sum += int(one.GetCounter().GetValue())
			}
		}
	}
	return sum
}
