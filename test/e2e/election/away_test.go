//go:build e2e

package election

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// leaseDuration is that of clusterload.QuickLease.
const leaseDuration = 4 * time.Second

// The API server is away from all servers for longer than the Lease lasts. Nobody decides then. Afterwards the server
// that decided does so again, and has not forgotten what only its memory had.
func TestTheAPIServerIsAwayForLongerThanTheLease(t *testing.T) {
	c := newCluster(t, shared.StartT(t), 1)
	proxy, err := c.StartFaultProxy()
	require.NoError(t, err)
	first := c.start("first", proxy, clusterload.QuickLease...)
	c.awaitLeader(first)
	c.start("second", proxy, clusterload.QuickLease...)
	c.Ledger = first.Caller
	granted := c.Reserve(&reserver.Request{
		SchedulerName: nobody, Pods: []*corev1.Pod{testbed.NewPod("to-come", nobody, "3")}, Nodes: c.nodes,
		TTLSeconds: 600, Durable: ptr.To(false),
	})
	require.Empty(t, granted.Error)
	pod := c.CreatePod("pod", nobody, "2")
	process, term := first.PID(), c.Metric("globalreserve_term")

	proxy.SetFault(func(*http.Request) controlplane.Fault { return controlplane.Fault{DropRequest: true} })
	c.Eventually(func(t *assert.CollectT) { assert.False(t, decides(c.T.Context(), first)) })
	controlplane.Never(t, func() bool {
		return slices.ContainsFunc(c.servers, func(s *testbed.Server) bool { return decides(t.Context(), s) })
	}, 2*leaseDuration, testbed.Poll)
	proxy.SetFault(nil)
	c.awaitLeader(first)
	assert.Equal(t, process, first.PID())
	assert.Equal(t, term, c.Metric("globalreserve_term"))
	assert.Len(t, c.Kept(), 1)
	assert.Contains(t, c.Bind(pod, c.nodes[0]), "cpu")
	c.RequireNeverOvercommitted()
}
