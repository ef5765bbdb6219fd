//go:build e2e

package election

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/kube/election/forward"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A server that does not decide has the one that does answer whatever it is asked: a request, a watch, a review.
func TestAnyServerAnswers(t *testing.T) {
	c := newCluster(t, shared.StartT(t), 3)
	webhook, err := clusterload.NewWebhook(c.ControlPlane)
	require.NoError(t, err)
	leader := c.start("leader", nil)
	c.awaitLeader(leader)
	follower := testbed.StartServer(t, c.ControlPlane, clusterload.ServerOptions{Name: "follower", Args: webhook.Args})
	require.False(t, decides(t.Context(), follower))
	c.Ledger = follower.Caller

	t.Run("watch", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), testbed.Soon)
		defer cancel()
		changes := testbed.Changes(ctx, t, follower.URL)
		require.Empty(t, c.Bind(c.CreatePod("watched", nobody, "100m"), c.nodes[2]))
		for change := range changes {
			if change.Allocation != nil && change.Allocation.Allocation.Pod == "watched" {
				return
			}
		}
		require.Fail(t, "the watch has ended")
	})
	t.Run("admission", func(t *testing.T) {
		reply, err := c.Ledger.Send(t.Context(), http.MethodPost, "/admission", struct{}{})
		require.NoError(t, err)
		assert.Empty(t, reply.Header.Get(forward.ServerHeader), "it is not for those who speak plain HTTP: %s", reply.Body)
		require.NoError(t, webhook.Install(t.Context(), c.ControlPlane, nil))
		c.CreatePod("naive", nobody, "1")
		require.NoError(t, c.BindDirectly("naive", c.nodes[1]))
		c.CreatePod("too-large", nobody, "4")
		require.Error(t, c.BindDirectly("too-large", c.nodes[1]))
		granted, err := leader.Metric(t.Context(), "globalreserve_decisions_total", "verb", "admission", "result", "granted")
		require.NoError(t, err)
		assert.Positive(t, granted, "the server that decides did so")
	})
	c.RequireNeverOvercommitted()
}

// The server that decides is told to stop, as by a rolling update, while it is asked for one bind after another. It
// gives the Lease up, and passes on what it is asked from then on: none of the binds fails.
func TestStoppedLeader(t *testing.T) {
	c := newCluster(t, shared.StartT(t), 10)
	leader := c.start("leader", nil, "--shutdown-delay=40s", "--shutdown-timeout=50s")
	c.awaitLeader(leader)
	next := c.start("next", nil)
	c.Eventually(func(t *assert.CollectT) {
		assert.NoError(t, controlplane.HTTPReady(next.URL+"/readyz", nil)(c.T.Context()))
	})
	asking, err := client.New(client.Options{URL: leader.URL, RetryFor: testbed.Soon})
	require.NoError(t, err)
	t.Cleanup(asking.Close)
	followed := 0
	for i := 0; followed < 5; i++ {
		if i == 5 {
			require.NoError(t, leader.Signal(syscall.SIGTERM))
		}
		if decides(t.Context(), next) {
			followed++
		}
		pod := c.CreatePod(fmt.Sprint("pod-", i), nobody, "10m")
		require.NoError(t, asking.Bind(t.Context(), &extenderv1.ExtenderBindingArgs{
			PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, Node: c.nodes[i%len(c.nodes)],
		}))
	}
	assert.True(t, leader.Running(), "there is time for others to learn that it goes")
	assert.False(t, decides(t.Context(), leader))
	c.RequireNeverOvercommitted()
}
