//go:build e2e

package schedulers

import (
	"context"
	"fmt"
	"testing"
	"time"

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
	percent   = 120 // of what the nodes offer is asked for
	quiet     = 1500 * time.Millisecond

	behindExtender = "default-scheduler"
	withPlugin     = "globalreserve-scheduler"
	onREST         = "gang-scheduler"
	naive          = "naive-scheduler"
)

// The ledger is in one of them, a globalreserve-scheduler, or in a server, which that one asks by the extender.
func TestFourSchedulersAtOnce(t *testing.T) {
	for name, local := range map[string]bool{"the ledger in a server": false, "the ledger in the scheduler": true} {
		t.Run(name, func(t *testing.T) {
			c := testbed.NewCluster(t, shared.StartT(t))
			blind := startFour(&c, local)
			for round := range rounds {
				race(&c, fmt.Sprintf("round-%d-", round))
				settle(&c)
				c.Clear()
			}
			refused, tooLate := blind.Refused()
			t.Logf("the naive scheduler: %d bindings refused for want of capacity, %d too late", refused, tooLate)
			assert.Positive(t, refused, "admission had nothing to refuse: this was no race")
		})
	}
}

// race creates pods for all four, whose names begin with a prefix.
func race(c *testbed.Cluster, prefix string) {
	c.T.Helper()
	pods := clusterload.Race(clusterload.RaceOptions{
		Namespace: namespace, Capacity: fourNodes * nodeCPUs * 1000, Percent: percent,
		Sizes:      []corev1.ResourceList{testbed.Requests("1"), testbed.Requests("500m")},
		Schedulers: []string{behindExtender, withPlugin, naive},
		// So many that there is capacity for whole gangs, however late their scheduler is.
		GangScheduler: onREST, GangSize: 4, GangPercent: 40,
	})
	for _, pod := range pods {
		pod.Name = prefix + pod.Name
	}
	require.NoError(c.T, clusterload.CreatePods(c.T.Context(), c.Client(), pods))
}

// settle waits for the end of a race. No node was ever overcommitted, all that fits is bound, and no gang runs in part.
func settle(c *testbed.Cluster) {
	c.T.Helper()
	limited, cancel := context.WithTimeout(c.T.Context(), testbed.Soon)
	defer cancel()
	snapshot, err := c.Watcher.AwaitSettled(limited, quiet)
	require.NoError(c.T, err, "everything that fits is bound")
	whole, half := snapshot.CountGangs()
	bound := map[string]int{}
	for _, pod := range testbed.Bound(c.Pods()) {
		bound[pod.Spec.SchedulerName]++
	}
	c.T.Logf("%d of %d pods bound, by %v; %d gangs whole, %d half, of %d",
		snapshot.Bound, snapshot.Pods, bound, whole, half, len(snapshot.Gangs))
	c.RequireNeverOvercommitted()
	assert.Zero(c.T, c.Watcher.Gaps(), "events were lost: the verdict is not complete")
	assert.NotZero(c.T, snapshot.Pending, "everything fitted: this was no race for capacity")
	assert.NotZero(c.T, whole)
	assert.Zero(c.T, half)
	for _, pod := range c.Pods() {
		assert.Positive(c.T, bound[pod.Spec.SchedulerName], "%s took no part", pod.Spec.SchedulerName)
	}
}

// startFour starts the ledger and the four schedulers, of which it returns the one that just binds.
func startFour(c *testbed.Cluster, local bool) *clusterload.NaiveScheduler {
	t, ctx := c.T, c.T.Context()
	names := c.AddNodes(fourNodes, controlplane.NodeTemplate{})
	webhook, err := clusterload.NewWebhook(c.ControlPlane)
	require.NoError(t, err)
	log := ""
	if local {
		scheduler, err := clusterload.StartPluginScheduler(ctx, c.ControlPlane, clusterload.PluginSchedulerOptions{
			Name: withPlugin, ServerArgs: webhook.PluginArgs,
		})
		require.NoError(t, err)
		c.Ledger.URL, log = scheduler.URL, scheduler.LogFile()
	} else {
		server, err := clusterload.StartServer(ctx, c.ControlPlane, clusterload.ServerOptions{Args: webhook.Args})
		require.NoError(t, err)
		c.Ledger.URL, log = server.URL, server.LogFile()
		c.StartKubeScheduler(withPlugin, "default-scheduler.yaml", "schedulerName: default-scheduler", "schedulerName: "+
			withPlugin)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the ledger's log:\n%s", testbed.Tail(log, 30))
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
