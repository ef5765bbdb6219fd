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
		runs := compare(b, c, setups, pluginRounds)
		b.ReportMetric(ratio(runs["local"], runs["plain"]), "x-local")
		b.ReportMetric(ratio(runs["remote"], runs["plain"]), "x-remote")
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
