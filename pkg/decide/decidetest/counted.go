package decidetest

import (
	"testing"

	"github.com/globalreserve/globalreserve/pkg/metrics/metricstest"
)

// Counted is metricstest.Counted of the World's metrics.
func (w *World) Counted(t testing.TB, name string, values ...string) (sum int) {
	t.Helper()
	return metricstest.Counted(t, w.Metrics, name, values...)
}
