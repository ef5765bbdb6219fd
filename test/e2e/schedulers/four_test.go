package schedulers

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	fourNodes = 20
	rounds    = 5

	behindExtender = "default-scheduler"
	withPlugin     = "globalreserve-scheduler"
	onREST         = "gang-scheduler"
	naive          = "naive-scheduler"
)

// The ledger is in a server, or in the globalreserve-scheduler itself.
func TestFourSchedulersAtOnce(t *testing.T) {
	for name, local := range map[string]bool{"the ledger in a server": false, "the ledger in the scheduler": true} {
		t.Run(name, func(t *testing.T) {
			c := testbed.NewCluster(t, shared.StartT(t))
			blind := startFour(&c, local)
			for round := range rounds {
				race(&c, clusterload.RaceOptions{
					Capacity: fourNodes * nodeCPUs * 1000, Sizes: []corev1.ResourceList{testbed.Requests("1"), testbed.Requests("500m")},
					Schedulers:    []string{behindExtender, withPlugin, naive},
					GangScheduler: onREST, GangSize: 4, GangPercent: 40, // so that there is room for whole gangs, however late their scheduler is
				}, func(name string) string { return fmt.Sprintf("round-%d-%s", round, name) })
				settle(&c)
				require.NoError(t, clusterload.DeletePods(t.Context(), c.Client(), namespace))
				c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.Allocations().Allocations) })
			}
			refused, tooLate := blind.Refused()
			t.Logf("the naive scheduler: %d bindings refused for want of capacity, %d too late", refused, tooLate)
			assert.Positive(t, refused, "admission had nothing to refuse: this was no race")
		})
	}
}

// startFour starts the ledger and the four schedulers, of which it returns the one that just binds.
func startFour(c *testbed.Cluster, local bool) *clusterload.NaiveScheduler {
	t, ctx := c.T, c.T.Context()
	names := c.AddNodes(fourNodes, controlplane.NodeTemplate{})
	webhook, err := clusterload.NewWebhook(c.ControlPlane)
	require.NoError(t, err)
	options := clusterload.PluginSchedulerOptions{Name: withPlugin}
	if local {
		options.ServerArgs = webhook.PluginArgs
	} else {
		server, err := clusterload.StartServer(ctx, c.ControlPlane, clusterload.ServerOptions{Args: slices.Concat(clusterload.QuickLease, webhook.Args)})
		require.NoError(t, err)
		c.Ledger.URL, options.RemoteURL = server.URL, server.URL
	}
	scheduler, err := clusterload.StartPluginScheduler(ctx, c.ControlPlane, options)
	require.NoError(t, err)
	if local {
		c.Ledger.URL = scheduler.URL
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the scheduler's log:\n%s", testbed.Tail(scheduler.LogFile(), 30))
		}
	})
	require.NoError(t, webhook.Install(ctx, c.ControlPlane, nil))
	c.StartKubeScheduler(behindExtender, "default-scheduler.yaml")
	_, err = clusterload.StartGangScheduler(ctx, c.ControlPlane, clusterload.GangSchedulerOptions{
		SchedulerName: onREST, ServerURL: c.Documented(), Command: []string{testbed.Program(t, "gangscheduler")},
	})
	require.NoError(t, err)
	blind := &clusterload.NaiveScheduler{Client: c.Client(), Name: naive, Namespace: namespace, Nodes: names}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		blind.Run(running)
	}()
	t.Cleanup(func() { stop(); <-stopped })
	return blind
}
