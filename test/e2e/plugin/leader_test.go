//go:build e2e

package plugin

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A server is killed between the Reserve and the Bind of a pod, and the one in its place, which knows
// nothing of the allocation, gives the capacity to somebody else. The bind is refused, not carried out beside it,
// and the pod is bound when the capacity comes free.
func TestAnotherServerBetweenReserveAndBind(t *testing.T) {
	binds, release := make(chan struct{}, 100), make(chan struct{})
	c := newCluster(t, setup{remote: true, nodes: 1, cpu: "4", via: func(server string) string {
		target, err := url.Parse(server)
		require.NoError(t, err)
		forward := httputil.NewSingleHostReverseProxy(target)
		between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == testbed.BindPath {
				select {
				case binds <- struct{}{}:
				default:
				}
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}
			forward.ServeHTTP(w, r)
		}))
		t.Cleanup(between.Close)
		t.Cleanup(between.CloseClientConnections)
		return between.URL
	}})
	c.create("pod", "4")
	<-binds
	require.Len(t, c.claims(), 1)
	c.Server.Crash(t) // it is ready when this returns
	require.Empty(t, c.claims(), "the allocation was in memory only")
	others := c.reserve("other", "4", c.nodes[0], time.Hour)
	close(release)
	assert.Contains(t, c.AwaitRefused("pod"), "GlobalReserve")
	assert.Empty(t, c.Pod("pod").Spec.NodeName)
	assert.Equal(t, []string{testbed.Namespace + "/other@" + c.nodes[0]}, c.claims())
	c.unreserve(others)
	c.bound("pod")
	c.awaitClaims(0)
	c.RequireNeverOvercommitted()
}

// A scheduler with the ledger in its process is suspended for longer than its lease lasts. Another one has
// the lease by then and gives the capacity away; the first one wakes up with its ledger of before, must not
// decide on it, and ends.
func TestALedgerThatWasSuspended(t *testing.T) {
	t.Parallel() // most of the time it waits for the end of the lease
	c := newCluster(t, setup{nodes: 1, cpu: "4"})
	c.create("before", "1")
	c.bound("before")
	require.NoError(t, c.scheduler.Signal(syscall.SIGSTOP))
	c.create("late", "3") // what the first one would do next
	const next = "next-scheduler"
	other, err := clusterload.StartPluginScheduler(t.Context(), c.ControlPlane, clusterload.PluginSchedulerOptions{Name: next})
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
