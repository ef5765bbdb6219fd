package bench

import (
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	memoryPods = 150_000
	// starts is how often the server is started with everything in place.
	starts = 3
)

// BenchmarkMemoryAndStart fills a cluster with 5,000 nodes and 150,000 bound pods, and starts the server
// on it: how long until it is ready, how much memory it takes at most and after a while.
func BenchmarkMemoryAndStart(b *testing.B) {
	c := startCluster(b)
	fill(b, c)
	for b.Loop() {
		server := startServer(b, c)
		var ready, used []time.Duration
		var peaks, rests []float64
		for range starts {
			_, err := server.Stop() // gives the Lease up: there is nothing to wait for but the pods
			require.NoError(b, err)
			began := time.Now()
			require.NoError(b, server.Start(b.Context()))
			ready = append(ready, time.Since(began))
			used = append(used, usedBy(b, server.Process))
			requireAllocations(b, server)
			rest, peak := awaitRest(b, server.PID())
			peaks, rests = append(peaks, peak), append(rests, rest)
			say("ready after %s and %s of its processor time, at most %.0f MiB, at rest %.0f MiB",
				ready[len(ready)-1].Round(time.Millisecond), used[len(used)-1], peak, rest)
		}
		b.ReportMetric(median(ready).Seconds(), "s-to-ready")
		b.ReportMetric(median(used).Seconds(), "server-cpu-s-to-ready")
		b.ReportMetric(median(peaks), "MiB-peak")
		b.ReportMetric(median(rests), "MiB-rest")
		b.Logf("SUMMARY %d nodes, %d pods, medians of %d starts: ready after %.1f s and %.1f s of its processor time, "+
			"%.0f MiB resident at most, %.0f MiB at rest",
			nodes, memoryPods, starts, median(ready).Seconds(), median(used).Seconds(), median(peaks), median(rests))
	}
}

// awaitRest watches a process until its memory has not grown for a while, and returns what it then
// has and the most it had, in MiB.
func awaitRest(b *testing.B, pid int) (rest, most float64) {
	b.Helper()
	const still = 10 * time.Second
	ticker := time.NewTicker(still / 10)
	defer ticker.Stop()
	for changed := time.Now(); time.Since(changed) < still; <-ticker.C {
		process, err := procfs.NewProc(pid)
		require.NoError(b, err)
		status, err := process.NewStatus()
		require.NoError(b, err)
		if peak := float64(status.VmHWM) / (1 << 20); peak > most {
			most, changed = peak, time.Now()
		}
		rest = float64(status.VmRSS) / (1 << 20)
	}
	return rest, most
}

// requireAllocations checks that the server holds every pod: one that had read less would be small and fast.
func requireAllocations(b *testing.B, server *clusterload.Server) {
	b.Helper()
	bound, err := testbed.Caller{URL: server.URL}.Metric(b.Context(), "globalreserve_allocations", "state", "Bound")
	require.NoError(b, err)
	require.InDelta(b, memoryPods, bound, 0)
}
