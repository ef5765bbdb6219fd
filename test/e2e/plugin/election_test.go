//go:build e2e

package plugin

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// replica starts one more scheduler for the pods of the first one, with the configuration that is shipped.
func (c *cluster) replica(name string) *clusterload.PluginScheduler {
	c.T.Helper()
	s, err := clusterload.StartPluginScheduler(c.T.Context(), c.ControlPlane, clusterload.PluginSchedulerOptions{
		Name: name, SchedulerName: scheduler, ServerArgs: serverArgs,
	})
	require.NoError(c.T, err)
	return s
}

// leads reports whether a process has the ledger, by its URL.
func (c *cluster) leads(url string) bool {
	leads, err := testbed.Caller{URL: url}.Metric(c.T.Context(), "globalreserve_leader")
	return err == nil && leads == 1
}

// awaitLeads waits until it has.
func (c *cluster) awaitLeads(url string) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) { assert.True(t, c.leads(url)) })
}

// wave creates pods of 1 CPU each.
func (c *cluster) wave(name string, pods int) {
	c.T.Helper()
	for i := range pods {
		c.create(fmt.Sprint(name, "-", i), "1")
	}
}

// One of two schedulers with the ledger in their process schedules, which is the one that has the ledger. When it is
// killed or stopped the other one goes on.
func TestTwoSchedulersOneElection(t *testing.T) {
	c := newCluster(t, setup{nodes: 4, cpu: "4"})
	other := c.replica("other-replica")
	c.awaitLeads(c.scheduler.URL)
	require.False(t, c.leads(other.URL))
	c.wave("before", 4)
	c.bound("before-0")

	require.NoError(t, c.scheduler.Kill())
	c.wave("killed", 4)
	c.bound("killed-0")
	c.Ledger.URL = other.URL

	require.NoError(t, c.scheduler.Start(t.Context()))
	require.NoError(t, c.scheduler.AwaitReady(t.Context()), "who stands by passes on what it is asked")
	c.awaitLeads(other.URL)
	ended := make(chan error, 1)
	go func() {
		_, err := other.Stop()
		ended <- err
	}()
	c.wave("stopped", 12) // more than there is capacity for
	c.bound("stopped-0")
	require.NoError(t, <-ended)
	c.Ledger.URL = c.scheduler.URL
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, testbed.Bound(c.Pods()), 16) })
	c.RequireNeverOvercommitted()
}

// While a server of its own has the ledger, a scheduler in mode local schedules nothing: what it would decide on is not
// the account. When that server is gone, it is the one.
func TestAServerBesideASchedulerWithALedger(t *testing.T) {
	c := &cluster{Cluster: testbed.NewCluster(t, shared.StartT(t))}
	c.nodes = c.AddNodes(2, nodeOf("4"))
	c.StartServer(clusterload.ServerOptions{})
	c.scheduler = c.replica(scheduler)
	c.awaitLeads(c.Server.URL)
	c.create("waits-0", "1")
	kept := c.reserve("kept", "4", c.nodes[0], time.Hour)
	c.Ledger.URL = c.scheduler.URL
	for range 20 { // any of them may be asked, and the one with the ledger answers
		require.Len(t, c.claims(), 1)
		require.Empty(t, c.Pod("waits-0").Spec.NodeName)
	}
	require.Empty(t, c.Pod("waits-0").Status.Conditions, "it is not even looked at")
	require.False(t, c.leads(c.scheduler.URL))
	c.unreserve(kept)

	require.NoError(t, c.Server.Kill())
	c.bound("waits-0")
	require.NoError(t, c.Server.Start(t.Context()), "it stands by, and is ready")
	c.awaitLeads(c.scheduler.URL)
	require.False(t, c.leads(c.Server.URL))
	c.RequireNeverOvercommitted()
}

// A scheduler with the ledger in its process is suspended for longer than its lease lasts. Another one has the lease by
// then and gives the capacity away; the first one wakes up with its ledger of before, must not decide on it, and ends.
func TestALedgerThatWasSuspended(t *testing.T) {
	t.Parallel() // most of the time it waits for the end of the lease
	c := newCluster(t, setup{nodes: 1, cpu: "4"})
	c.create("before", "1")
	c.bound("before")
	require.NoError(t, c.scheduler.Signal(syscall.SIGSTOP))
	c.create("late", "3") // what the first one would do next
	const next = "next-scheduler"
	other, err := clusterload.StartPluginScheduler(t.Context(), c.ControlPlane,
		clusterload.PluginSchedulerOptions{Name: next})
	require.NoError(t, err)
	require.Empty(t, c.Pod("late").Spec.NodeName, "it was suspended before that was created")
	c.create("meanwhile", "3", func(p *corev1.Pod) { p.Spec.SchedulerName = next })
	c.bound("meanwhile")
	require.NoError(t, c.scheduler.Signal(syscall.SIGCONT))
	c.Eventually(func(t *assert.CollectT) { assert.False(t, c.scheduler.Running(), "it ends itself") })
	assert.Empty(t, c.Pod("late").Spec.NodeName)
	c.RequireNeverOvercommitted()
	require.NoError(t, other.AwaitReady(t.Context()), "one has the ledger")
}
