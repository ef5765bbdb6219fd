//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestWaitingPodsWakeUp reserves the only node for pods that never come, and has a kube-scheduler refuse
// pods for it. They run after the reservation's end, which no event that kube-scheduler watches announces.
func TestWaitingPodsWakeUp(t *testing.T) {
	c := newServedCluster(t, 1)
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	const ttl = 10 * time.Second // long enough to have pods refused before
	reservation := gangOf([]*corev1.Pod{testbed.NewPod("never-comes", nobody, "4")}, "node-0")
	reservation.TTLSeconds = int64(ttl / time.Second)
	asked := time.Now()
	require.True(t, c.Reserve(reservation).Granted())
	waiting := c.Create(testbed.NewPods(3, "waiting", "default-scheduler", "1")...)
	c.awaitRefused(waiting)
	for _, pod := range waiting {
		_, at := c.AwaitBound(pod.Name)
		late := at.Sub(asked.Add(ttl))
		t.Logf("%s bound %s after the reservation's end", pod.Name, late.Round(time.Millisecond))
		require.Positive(t, late, "it did not wait for the reservation")
	}
	c.requireAgreement()
	require.NotZero(t, c.Metric("globalreserve_wakeups_total"))
	c.RequireNeverOvercommitted()
}

func (c *cluster) awaitRefused(pods []*corev1.Pod) {
	c.T.Helper()
	for _, pod := range pods {
		c.AwaitRefused(pod.Name)
	}
}

// TestRestartWakesWaitingPods kills the server while pods wait that it refused. The reservation they
// waited for, in memory only, is gone with it, and nothing that kube-scheduler watches tells that. What is
// bound the server knows again.
func TestRestartWakesWaitingPods(t *testing.T) {
	c := newServedCluster(t, 2)
	for i, pod := range c.Create(testbed.NewPods(4, "pod", nobody, "1")...) {
		require.Empty(t, c.Bind(pod, fmt.Sprintf("node-%d", i%2)))
	}
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	revision := c.Allocations().Revision
	require.True(t, c.Reserve(gangOf(testbed.NewPods(2, "never-comes", nobody, "2"), "node-0", "node-1")).Granted())
	waiting := c.Create(testbed.NewPods(3, "waiting", "default-scheduler", "1")...)
	c.awaitRefused(waiting)
	c.AwaitBackOffOver()
	c.Server.Crash(t)
	ready := time.Now()
	for _, pod := range waiting {
		_, at := c.AwaitBound(pod.Name)
		t.Logf("%s bound %s after the server was ready", pod.Name, at.Sub(ready).Round(time.Millisecond))
	}
	c.requireAgreement()
	require.Greater(t, c.Allocations().Revision, revision, "revisions never go back")
	require.Zero(t, c.Metric("globalreserve_bypassed_binds_total"), "what was bound before is no news")
	c.RequireNeverOvercommitted()
}
