package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRestartWakesWaitingPods kills the server while pods wait that it refused. The reservation they
// waited for, in memory only, is gone with it, and nothing that kube-scheduler watches tells that.
func TestRestartWakesWaitingPods(t *testing.T) {
	c := newServedCluster(t, 1)
	c.startScheduler("default-scheduler", "default-scheduler.yaml")
	request := groupOf(newPods(1, "never-comes", nobody, "4"), "node-0")
	request.TTLSeconds = int64(time.Hour / time.Second)
	require.True(t, granted(c.reserve(t, request)))
	waiting := c.create(newPods(3, "waiting", "default-scheduler", "1")...)
	c.awaitRefused(waiting)
	c.awaitBackOffOver()
	require.NoError(t, c.server.Kill())
	require.NoError(t, c.server.Start(t.Context()))
	ready := time.Now()
	for _, pod := range waiting {
		_, at := c.awaitBound(pod, soon)
		t.Logf("%s bound %s after the server was ready", pod.Name, at.Sub(ready).Round(time.Millisecond))
		require.Less(t, at.Sub(ready), wakeWithin)
	}
	c.requireAgreement()
	c.requireNeverOvercommitted()
}
