package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

// pluginRounds is how often each setup of BenchmarkPluginRate runs.
const pluginRounds = 3

// BenchmarkPluginRate has one scheduler bind 2,000 waiting pods on 5,000 nodes: a plain
// kube-scheduler, and globalreserve-scheduler with the ledger in its process and in a server.
func BenchmarkPluginRate(b *testing.B) {
	c := startCluster(b)
	setups := []setup{
		{name: "plain"},
		{name: "local", scheduler: pluginScheduler},
		{name: "remote", start: globalReserve(), scheduler: pluginScheduler},
	}
	for b.Loop() {
		runs := map[string][]run{}
		for round := range pluginRounds {
			for _, s := range setups {
				got := measure(b, c, s)
				runs[s.name] = append(runs[s.name], got)
				say("round %d of %d: %-8s %s", round+1, pluginRounds, s.name, got)
			}
		}
		for _, s := range setups {
			var rates, ratios, cpu []float64
			for i, r := range runs[s.name] {
				rates = append(rates, r.podsPerSecond)
				ratios = append(ratios, r.podsPerSecond/runs["plain"][i].podsPerSecond)
				cpu = append(cpu, float64((r.schedulerCPU + r.extenderCPU).Microseconds()))
			}
			b.ReportMetric(median(rates), s.name+"-pods/s")
			b.ReportMetric(median(ratios), "x-"+s.name)
			b.Logf("SUMMARY %d nodes, %d pods, medians of %d, %s: %.0f pods/s (%.2f of plain), processor time per pod %.0f µs",
				nodes, ratePods, pluginRounds, s.name, median(rates), median(ratios), median(cpu))
		}
	}
}

// pluginScheduler starts a globalreserve-scheduler, with the ledger in it where there is no url.
func pluginScheduler(b *testing.B, c *controlplane.ControlPlane, name, url string) *controlplane.Process {
	b.Helper()
	scheduler, err := clusterload.StartPluginScheduler(b.Context(), c, clusterload.PluginSchedulerOptions{
		Name: name, SchedulerName: "default-scheduler", RemoteURL: url,
	})
	require.NoError(b, err)
	return scheduler.Process
}
