//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestWaitingPodsWakeUp reserves the only node for pods that never come, and has a kube-scheduler refuse
// pods for it. They run after the reservation's end, which no event that kube-scheduler watches announces.
func TestWaitingPodsWakeUp(t *testing.T) {
	c := newServedCluster(t, 1)
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	const ttl = 10 * time.Second // long enough to have pods refused before
	reservation := func(seconds time.Duration) *reserver.Request {
		request := gangOf([]*corev1.Pod{testbed.NewPod("never-comes", nobody, "4")}, "node-0")
		request.TTLSeconds = int64(seconds / time.Second)
		return request
	}
	// Each returns the earliest moment at which the capacity may have become free.
	ends := map[string]func(*cluster, func()) time.Time{
		"when a reservation expires": func(c *cluster, refusePods func()) time.Time {
			asked := time.Now()
			require.True(c.T, c.Reserve(reservation(ttl)).Granted())
			refusePods()
			return asked.Add(ttl)
		},
		"when a reservation is given back": func(c *cluster, refusePods func()) time.Time {
			require.True(c.T, c.Reserve(reservation(time.Hour)).Granted())
			refusePods()
			c.AwaitBackOffOver()
			asked := time.Now()
			require.True(c.T, c.Unreserve(reservation(0)).Granted())
			return asked
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			c.clear()
			var waiting []*corev1.Pod
			ended := end(c, func() {
				waiting = c.Create(testbed.NewPods(3, "waiting", "default-scheduler", "1")...)
				c.awaitRefused(waiting)
			})
			for _, pod := range waiting {
				_, at := c.AwaitBound(pod.Name)
				t.Logf("%s bound %s after the reservation's end", pod.Name, at.Sub(ended).Round(time.Millisecond))
				require.Greater(t, at.Sub(ended), time.Duration(0), "it did not wait for the reservation")
			}
			c.requireAgreement()
		})
	}
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
