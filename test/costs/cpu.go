//go:build unix

package costs

import (
	"syscall"
	"testing"
	"time"
)

// CPU is the processor time that this process has used, in user and kernel mode. Others on the machine distort
// it less than the time that passes.
func CPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic("costs: reading the processor time of this process: " + err.Error())
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Meter sums up processor time of a part of what a benchmark does.
type Meter struct{ since, sum time.Duration }

// Start begins to measure.
func (m *Meter) Start() { m.since = CPU() }

// Stop ends that.
func (m *Meter) Stop() { m.sum += CPU() - m.since }

// Report adds a metric to a benchmark: the processor time per operation, in nanoseconds, of so many of them.
func (m *Meter) Report(b *testing.B, operations int) {
	b.Helper()
	b.ReportMetric(float64(m.sum.Nanoseconds())/float64(operations), "cpu-ns/op")
}
