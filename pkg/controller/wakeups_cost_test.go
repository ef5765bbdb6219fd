package controller

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// TestReadingEventsCostsLittle: events are read after every change of the ledger, several times for
// each pod that is bound.
func TestReadingEventsCostsLittle(t *testing.T) {
	w := NewWakeups(WakeupOptions{Ledger: ledger.New(ledger.Options{})})
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			w.readNew(w.Ledger.Revision())
		}
	})
	require.Less(t, result.AllocedBytesPerOp(), int64(1024), "bytes for nothing new")
}
