//go:build e2e

package election

import (
	"net/http"
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
	for name, others := range map[string]int{"one server": 0, "two servers": 1} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, shared.StartT(t), 1)
			proxy, err := c.StartFaultProxy()
			require.NoError(t, err)
			first := c.start("first", proxy, clusterload.QuickLease...)
			c.awaitLeader(first)
			for range others {
				c.start("second", proxy, clusterload.QuickLease...)
			}
			c.Ledger = first.Caller
			granted := c.Reserve(&reserver.Request{
				SchedulerName: nobody, Pods: []*corev1.Pod{testbed.NewPod("to-come", nobody, "3")}, Nodes: c.nodes,
				TTLSeconds: 600, Durable: ptr.To(false),
			})
			require.Empty(t, granted.Error)
			pod := c.CreatePod("pod", nobody, "2")
			process, term := first.PID(), c.Metric("globalreserve_term")

			proxy.SetFault(func(*http.Request) controlplane.Fault { return controlplane.Fault{DropRequest: true} })
			ended := time.Now().Add(2 * leaseDuration)
			c.Eventually(func(t *assert.CollectT) { assert.False(t, decides(c.T.Context(), first)) })
			for time.Now().Before(ended) {
				for _, server := range c.servers {
					require.False(t, decides(t.Context(), server), server.Name())
				}
				<-time.After(testbed.Poll)
			}
			proxy.SetFault(nil)
			c.awaitLeader(first)
			t.Logf("decides again %s after the outage", time.Since(ended).Round(time.Millisecond))
			assert.Equal(t, process, first.PID())
			assert.Equal(t, term, c.Metric("globalreserve_term"))
			assert.Len(t, c.Kept(), 1)
			assert.Contains(t, c.Bind(pod, c.nodes[0]), "cpu")
			c.RequireNeverOvercommitted()
		})
	}
}
