package e2e

import (
	"net/http"
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

// newProxiedCluster is a cluster whose server, and nobody else, reaches the API server through a proxy.
func newProxiedCluster(t *testing.T, nodes int, args ...string) (*cluster, *controlplane.FaultProxy) {
	t.Helper()
	c := newCluster(t, nodes)
	proxy := c.startProxiedServer(args...)
	return c, proxy
}

func (c *cluster) startProxiedServer(args ...string) *controlplane.FaultProxy {
	c.T.Helper()
	var err error
	c.Proxy, err = c.StartFaultProxy()
	require.NoError(c.T, err)
	c.startServer(clusterload.ServerOptions{Args: args})
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

// lostAnswer is what is done to the binds of a test, and what their callers may be told.
type lostAnswer struct {
	fault controlplane.FaultFunc
	says  string
}

// What the caller of /bind may be told at once.
const success, failure, either = "bound", "not bound", "either"

// TestLostAnswers loses what the API server answers to binds, or the binds themselves. Whatever the
// caller is told, the pod is bound at most once, and the ledger ends as the API server has it.
func TestLostAnswers(t *testing.T) {
	c, _ := newProxiedCluster(t, 2)
	c.loseAnswers(map[string]lostAnswer{
		"the answer is lost after the commit": {onFirstBinds(1, controlplane.Fault{DropAnswer: true}), success},
		"every answer is lost":                {onFirstBinds(100, controlplane.Fault{DropAnswer: true}), success},
		"the request is lost":                 {onFirstBinds(1, controlplane.Fault{DropRequest: true}), either},
		"the request is lost twice":           {onFirstBinds(2, controlplane.Fault{DropRequest: true}), either},
		"an internal error before the commit": {
			onFirstBinds(1, controlplane.Fault{Refuse: http.StatusInternalServerError}),
			either,
		},
		"the API server is overloaded": {onFirstBinds(1, controlplane.Fault{Refuse: http.StatusTooManyRequests}), either},
		"not allowed":                  {onFirstBinds(1, controlplane.Fault{Refuse: http.StatusForbidden}), failure},
	})
}

// TestLateAnswers is TestLostAnswers with answers and binds that come, but not in time. The server has less time for a
// bind than in production, and a third of that for one answer of the API server, so that the faults are short, too.
func TestLateAnswers(t *testing.T) {
	const bindTime = 4 * time.Second
	const requestTime = bindTime / 3
	c, _ := newProxiedCluster(t, 2, "--bind-timeout="+bindTime.String())
	c.loseAnswers(map[string]lostAnswer{
		"the answer takes too long": {
			onFirstBinds(1, controlplane.Fault{After: requestTime * 5 / 4}),
			either,
		},
		"committed late, when the server has tried again": {onFirstBinds(1,
			controlplane.Fault{Before: requestTime * 3 / 2, DropAnswer: true}), either},
	})
}

// loseAnswers binds four pods under each of the faults.
func (c *cluster) loseAnswers(tests map[string]lostAnswer) {
	c.T.Helper()
	for name, test := range tests {
		c.run(name, func(c *cluster) {
			c.clear()
			faultsBefore := c.Proxy.Faulted()
			c.Proxy.SetFault(test.fault)
			defer c.Proxy.SetFault(nil)
			pods := c.Create(testbed.NewPods(4, "pod", nobody, "2")...)
			answers := c.bindTogether(pods)
			require.NotEqual(c.T, faultsBefore, c.Proxy.Faulted(), "nothing happened to any bind")
			for i, pod := range pods {
				c.T.Logf("%s: %q", pod.Name, answers[i])
				bound := c.Pod(pod.Name).Spec.NodeName != ""
				if answers[i] == "" {
					require.True(c.T, bound, "the server says that %s is bound, and it is not", pod.Name)
				}
				switch test.says {
				case success:
					require.Empty(c.T, answers[i])
				case failure:
					require.NotEmpty(c.T, answers[i])
					require.False(c.T, bound)
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
