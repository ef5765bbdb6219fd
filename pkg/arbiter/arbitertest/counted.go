package arbitertest

import (
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// Counted returns the sum of the counters of a name, which is without the prefix, that have all of the values as
// labels.
func (w *World) Counted(t testing.TB, name string, values ...string) (sum int) {
	t.Helper()
	families, err := w.Metrics.Gatherer().Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != "globalreserve_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			lacks := func(value string) bool {
				return !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == value })
			}
			if !slices.ContainsFunc(values, lacks) {
				sum += int(m.GetCounter().GetValue())
			}
		}
	}
	return sum
}
