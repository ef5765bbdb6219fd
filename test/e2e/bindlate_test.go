//go:build e2e

package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// bindTime is how long the server may take for a bind in tests that slot binds up, and requestTime how long
// it waits for one answer of the API server within that: both shorter than in production, and so are the
// faults.
const (
	bindTime    = 4 * time.Second
	requestTime = bindTime / 3
)

// bindTimeout is the argument of a server with it.
var bindTimeout = "--bind-timeout=" + bindTime.String()

// TestLateAnswers is TestLostAnswers with answers and binds that come, but not in time.
func TestLateAnswers(t *testing.T) {
	c, _ := newProxiedCluster(t, 2, bindTimeout)
	c.loseAnswers(map[string]lostAnswer{
		"the answer takes too long":                       {onFirstBinds(1, controlplane.Fault{After: requestTime * 5 / 4}), either},
		"committed late, when the server has tried again": {onFirstBinds(1, controlplane.Fault{Before: requestTime * 3 / 2, DropAnswer: true}), either},
	})
}

// TestLateEvents delays what the server hears of the cluster, while the binds go through at once.
func TestLateEvents(t *testing.T) {
	c, proxy := newProxiedCluster(t, 2, bindTimeout)
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if strings.Contains(r.URL.RawQuery, "watch=") {
			return controlplane.Fault{Before: 2 * time.Second}
		}
		return controlplane.Fault{}
	})
	require.NoError(t, c.Server.Restart(t.Context()))
	unknown := c.Create(testbed.NewPods(4, "unheard-of", nobody, "2")...)
	for i, answer := range c.bindTogether(unknown) {
		require.Empty(t, answer, "pod %d: a pod the informer does not know yet is read live", i)
	}
	extra := c.CreatePod("extra", nobody, "1")
	require.NotEmpty(t, c.Bind(extra, "node-0"), "the capacity is taken, even if no event says so yet")
	c.RequireNeverOvercommitted()
	c.requireAgreement()
}

// TestUnknownOutcome holds binds back for longer than the server waits for them. Until it knows what
// became of the bind, it neither gives the capacity to others nor binds the pod elsewhere.
func TestUnknownOutcome(t *testing.T) {
	c, proxy := newProxiedCluster(t, 2, bindTimeout)
	proxy.SetFault(onFirstBinds(100, controlplane.Fault{Before: bindTime * 5 / 4, DropAnswer: true}))
	pod := c.CreatePod("pod", nobody, "3")
	rival := c.CreatePod("rival", nobody, "2")
	require.Contains(t, c.Bind(pod, "node-0"), "not known")
	require.Empty(t, c.Pod(pod.Name).Spec.NodeName)
	allocation := c.AllocationOf(pod)
	require.NotNil(t, allocation, "the capacity of a bind that may still happen was given away")
	require.Equal(t, "Binding", allocation.State)
	require.NotEmpty(t, c.Bind(pod, "node-1"), "it may be on node-0 soon")
	require.Equal(t, []string{"rival"}, c.Reserve(gangOf([]*corev1.Pod{rival}, "node-0")).FailedPods)
	bound, _ := c.AwaitBound(pod.Name)
	require.Equal(t, "node-0", bound.Spec.NodeName)
	c.RequireNeverOvercommitted()
	c.requireAgreement()
}
