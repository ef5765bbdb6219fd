//go:build e2e

package plugin

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

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
