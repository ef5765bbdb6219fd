package election

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The API server is away from all servers for longer than the Lease lasts. Nobody decides then. Afterwards the server
// that decided does so again, and has not forgotten what only its memory had. Another one gives it a moment for that, so a
// pause may have the other one win: not each time.
func TestTheAPIServerIsAwayForLongerThanTheLease(t *testing.T) {
	for name, others := range map[string]int{"one server": 0, "two servers": 1} {
		t.Run(name, func(t *testing.T) {
			again := false
			for i := 0; i < 3 && !again && !t.Failed(); i++ {
				t.Run(fmt.Sprint("try ", i), func(t *testing.T) { again = decidesAgain(t, others) })
			}
			assert.True(t, again, "the server that decided does so again")
		})
	}
}

// decidesAgain returns whether the server that decided does so again, and not another one.
func decidesAgain(t *testing.T, others int) bool {
	c := newCluster(t, shared.StartT(t), 1)
	proxy, err := c.StartFaultProxy()
	require.NoError(t, err)
	first := c.start("first", proxy)
	c.awaitLeader(first)
	c.Ledger = first.Caller
	granted := c.Reserve(&reserver.Request{
		SchedulerName: nobody, Pods: []*corev1.Pod{testbed.NewPod("to-come", nobody, "3")}, Nodes: c.nodes,
		TTLSeconds: 600, Durable: ptr.To(false),
	})
	require.Empty(t, granted.Error)
	pod := c.CreatePod("pod", nobody, "2")
	process, term := first.PID(), c.Metric("globalreserve_term")
	for range others {
		c.start("second", proxy)
	}

	proxy.SetFault(func(*http.Request) controlplane.Fault { return controlplane.Fault{DropRequest: true} })
	ended := time.Now().Add(2 * leaseDuration)
	<-time.After(leaseDuration) // what was sent before may have renewed it
	for time.Now().Before(ended) {
		require.Nil(t, c.decider())
		<-time.After(testbed.Poll)
	}
	proxy.SetFault(nil)
	if winner := c.leader(); winner != first {
		t.Logf("%s was faster", winner.Name())
		return false
	}
	t.Logf("decides again %s after the outage", time.Since(ended).Round(time.Millisecond))
	assert.Equal(t, process, first.PID())
	assert.Equal(t, term, c.Metric("globalreserve_term"))
	assert.Len(t, c.Kept(), 1)
	assert.Contains(t, c.Bind(pod, c.nodes[0]), "cpu")
	c.RequireNeverOvercommitted()
	return true
}
