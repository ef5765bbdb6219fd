package e2e

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// bindTime is how long the server may take for a bind in tests that slot binds up, and requestTime how long
// it waits for one answer of the API server within that: both shorter than in production, and so are the
// faults.
const (
	bindTime    = 7 * time.Second
	requestTime = bindTime / 3
)

// newProxiedCluster is a cluster whose server, and nobody else, reaches the API server through a proxy.
func newProxiedCluster(t *testing.T, nodes int) (*cluster, *controlplane.FaultProxy) {
	t.Helper()
	c := newCluster(t, nodes)
	proxy := c.startProxiedServer()
	return c, proxy
}

func (c *cluster) startProxiedServer() *controlplane.FaultProxy {
	c.T.Helper()
	var err error
	c.Proxy, err = c.StartFaultProxy()
	require.NoError(c.T, err)
	c.startServer(clusterload.ServerOptions{Args: append([]string{"--bind-timeout=" + bindTime.String()}, clusterload.SlowLease...)})
	return c.Proxy
}

// onFirstBinds does something to the first few bindings of every pod.
func onFirstBinds(times int, fault controlplane.Fault) controlplane.FaultFunc {
	var mu sync.Mutex
	seen := map[string]int{}
	return func(r *http.Request) controlplane.Fault {
		if !controlplane.IsBinding(r) {
			return controlplane.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Path]++
		if seen[r.URL.Path] > times {
			return controlplane.Fault{}
		}
		return fault
	}
}

// TestLostAnswers loses what the API server answers to binds, or the binds themselves. Whatever the
// caller is told, the pod is bound at most once, and the ledger ends as the API server has it.
func TestLostAnswers(t *testing.T) {
	c, proxy := newProxiedCluster(t, 2)
	// What the caller of /bind may be told at once.
	const success, failure, either = "bound", "not bound", "either"
	tests := map[string]struct {
		fault controlplane.FaultFunc
		says  string
	}{
		"the answer is lost after the commit":             {onFirstBinds(1, controlplane.Fault{DropAnswer: true}), success},
		"every answer is lost":                            {onFirstBinds(100, controlplane.Fault{DropAnswer: true}), success},
		"the request is lost":                             {onFirstBinds(1, controlplane.Fault{DropRequest: true}), either},
		"the request is lost twice":                       {onFirstBinds(2, controlplane.Fault{DropRequest: true}), either},
		"an internal error before the commit":             {onFirstBinds(1, controlplane.Fault{Refuse: http.StatusInternalServerError}), either},
		"the API server is overloaded":                    {onFirstBinds(1, controlplane.Fault{Refuse: http.StatusTooManyRequests}), either},
		"not allowed":                                     {onFirstBinds(1, controlplane.Fault{Refuse: http.StatusForbidden}), failure},
		"the answer takes too long":                       {onFirstBinds(1, controlplane.Fault{After: requestTime * 5 / 4}), success},
		"committed late, when the server has tried again": {onFirstBinds(1, controlplane.Fault{Before: requestTime * 3 / 2, DropAnswer: true}), either},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			c.clear()
			faultsBefore := proxy.Faulted()
			proxy.SetFault(test.fault)
			defer proxy.SetFault(nil)
			pods := c.Create(testbed.NewPods(4, "pod", nobody, "2")...)
			answers := c.bindTogether(pods)
			require.NotEqual(t, faultsBefore, proxy.Faulted(), "nothing happened to any bind")
			for i, pod := range pods {
				t.Logf("%s: %q", pod.Name, answers[i])
				bound := c.Pod(pod.Name).Spec.NodeName != ""
				if answers[i] == "" {
					require.True(t, bound, "the server says that %s is bound, and it is not", pod.Name)
				}
				switch test.says {
				case success:
					require.Empty(t, answers[i])
				case failure:
					require.NotEmpty(t, answers[i])
					require.False(t, bound)
				}
			}
			c.bindUntilBound(pods)
			c.RequireNeverOvercommitted()
			c.requireAgreement()
		})
	}
	c.requireNoDriftSeen()
}

// bindTogether binds each two pods to a node, at the same time.
func (c *cluster) bindTogether(pods []*corev1.Pod) []string {
	answers := make([]string, len(pods))
	var callers sync.WaitGroup
	for i, pod := range pods {
		callers.Go(func() { answers[i] = c.Bind(pod, nodeOf(i)) })
	}
	callers.Wait()
	return answers
}

func nodeOf(i int) string { return []string{"node-0", "node-1"}[i%2] }

// bindUntilBound repeats binds as a scheduler would, until each has succeeded.
func (c *cluster) bindUntilBound(pods []*corev1.Pod) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		for i, pod := range pods {
			if c.Pod(pod.Name).Spec.NodeName == "" {
				assert.Empty(t, c.Bind(pod, nodeOf(i)))
			}
		}
	})
}

// TestLostAnswersUnderLoad loses every fourth answer while kube-schedulers bind.
func TestLostAnswersUnderLoad(t *testing.T) {
	c, proxy := newProxiedCluster(t, faultNodes)
	var mu sync.Mutex
	count := 0
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if !controlplane.IsBinding(r) {
			return controlplane.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		count++
		switch count % 12 {
		case 0, 4:
			return controlplane.Fault{DropAnswer: true}
		case 8:
			return controlplane.Fault{DropRequest: true}
		case 2:
			return controlplane.Fault{Refuse: http.StatusServiceUnavailable}
		default:
			return controlplane.Fault{}
		}
	})
	c.underLoad()
	t.Logf("%d binds were harmed", proxy.Faulted())
	require.Greater(t, proxy.Faulted(), int64(100))
	require.Zero(t, c.Metric("globalreserve_bypassed_binds_total"), "the server took its own binds for those of others")
}

// TestLateEvents delays what the server hears of the cluster, while the binds go through at once.
func TestLateEvents(t *testing.T) {
	c, proxy := newProxiedCluster(t, 2)
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
	c, proxy := newProxiedCluster(t, 2)
	release := make(chan struct{})
	arrive := sync.OnceFunc(func() { close(release) })
	t.Cleanup(arrive)
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if !controlplane.IsBinding(r) {
			return controlplane.Fault{}
		}
		<-release
		return controlplane.Fault{DropAnswer: true}
	})
	pod := c.CreatePod("pod", nobody, "3")
	rival := c.CreatePod("rival", nobody, "2")
	require.Contains(t, c.Bind(pod, "node-0"), "not known")
	require.Empty(t, c.Pod(pod.Name).Spec.NodeName)
	allocation := c.AllocationOf(pod)
	require.NotNil(t, allocation, "the capacity of a bind that may still happen was given away")
	require.Equal(t, "Binding", allocation.State)
	require.NotEmpty(t, c.Bind(pod, "node-1"), "it may be on node-0 soon")
	require.Equal(t, []string{"rival"}, c.Reserve(gangOf([]*corev1.Pod{rival}, "node-0")).FailedPods)
	arrive()
	bound, _ := c.AwaitBound(pod.Name)
	require.Equal(t, "node-0", bound.Spec.NodeName)
	c.RequireNeverOvercommitted()
	c.requireAgreement()
}
