//go:build e2e

package e2e

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestGracefulStop asks the server to end while binds are under way: all of them get their answer.
func TestGracefulStop(t *testing.T) {
	c := newProxiedCluster(t, 4)
	var underWay sync.Map // by path
	stopping := make(chan struct{})
	c.Proxy.SetFault(func(r *http.Request) (lost bool) {
		if !controlplane.IsBinding(r) {
			return false
		}
		underWay.Store(r.URL.Path, true)
		select {
		case <-stopping:
		case <-r.Context().Done():
		}
		<-time.After(time.Second) // the server has to wait for it
		return false
	})
	pods := c.Create(testbed.NewPods(12, "pod", nobody, "1")...)
	answers := make([]string, len(pods))
	var callers sync.WaitGroup
	for i, pod := range pods {
		callers.Go(func() { answers[i] = c.Bind(pod, "node-"+strconv.Itoa(i%4)) })
	}
	c.Eventually(func(t *assert.CollectT) {
		seen := 0
		underWay.Range(func(any, any) bool { seen++; return true })
		assert.Equal(t, len(pods), seen, "binds under way")
	})
	watch := c.openWatch()
	require.NoError(t, c.Server.Signal(syscall.SIGTERM))
	close(stopping)
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Soon)
	defer cancel()
	code, err := c.Server.Wait(ctx)
	require.NoError(t, err)
	require.Zero(t, code, "exit code after SIGTERM")
	callers.Wait()
	for i, answer := range answers {
		require.Empty(t, answer, "bind %d was cut off", i)
		require.NotEmpty(t, c.Pod(pods[i].Name).Spec.NodeName)
	}
	require.NoError(t, watch(), "a watcher is no reason to hang")
	c.Proxy.SetFault(nil)
	require.NoError(t, c.Server.Start(t.Context()))
	c.requireAgreement()
}

// TestBadStart: a server does not start with a policy that it cannot follow, and says so.
func TestBadStart(t *testing.T) {
	c := newCluster(t, 1)
	_, err := clusterload.StartServer(t.Context(), c.ControlPlane,
		clusterload.ServerOptions{Args: []string{"--policy-file=/no/such/file"}})
	require.ErrorContains(t, err, "exit code 1")
	require.ErrorContains(t, err, "/no/such/file")
}

// openWatch opens /v1/watch and returns once it streams. The function it returns waits for its end.
func (c *cluster) openWatch() func() error {
	c.T.Helper()
	request, err := http.NewRequestWithContext(c.T.Context(), http.MethodGet, c.Server.URL+testbed.WatchPath, nil)
	require.NoError(c.T, err)
	streaming, ended := make(chan int, 1), make(chan error, 1)
	go func() {
		response, err := testbed.Streaming.Do(request)
		if err != nil {
			streaming <- 0
			ended <- err
			return
		}
		defer response.Body.Close()
		streaming <- response.StatusCode
		_, err = io.Copy(io.Discard, response.Body)
		ended <- err
	}()
	require.Equal(c.T, http.StatusOK, <-streaming)
	return func() error { return <-ended }
}

// TestBypassedBinds binds pods past the server until a node is overcommitted. The server cannot
// prevent that; it has to say so, and to grant nothing more there until capacity is back.
func TestBypassedBinds(t *testing.T) {
	c := newServedCluster(t, 2)
	pods := c.Create(testbed.NewPods(3, "stranger", nobody, "2")...)
	for i, pod := range pods {
		require.NoError(c.T, c.BindDirectly(pod.Name, "node-0"))
		c.Eventually(func(t *assert.CollectT) {
			metrics := c.Scrape()
			assert.Equal(t, i+1, int(metrics.Sum("globalreserve_bypassed_binds_total", "scheduler", nobody)))
			assert.Equal(t, max(0, i-1), int(metrics.Sum("globalreserve_overcommitted_nodes")))
		})
	}
	c.CatchUp()
	require.NotEmpty(t, c.Watcher.Violations(), "the API server shows it too")
	require.Equal(t, []string{"node-0"}, c.overcommitted())

	asking := c.CreatePod("asking", nobody, "100m")
	require.NotEmpty(t, c.Bind(asking, "node-0"), "a node that has too much already gets no more")
	require.NotEmpty(t, c.Reserve(gangOf([]*corev1.Pod{asking}, "node-0")).Error)

	c.Delete(pods[0].Name)
	c.Eventually(func(t *assert.CollectT) {
		assert.Zero(t, c.Metric("globalreserve_overcommitted_nodes"))
	})
	require.Empty(t, c.overcommitted())
	require.NotEmpty(t, c.Bind(asking, "node-0"), "it is full")
	c.Delete(pods[1].Name)
	c.Eventually(func(t *assert.CollectT) {
		assert.Empty(t, c.Bind(asking, "node-0"), "there is capacity again")
	})
	c.requireAgreement()
	c.requireNoDriftSeen()
}

// overcommitted returns the nodes that the server calls overcommitted.
func (c *cluster) overcommitted() []string {
	c.T.Helper()
	var answer reserver.NodesAnswer
	require.NoError(c.T, c.Ledger.Get(c.T.Context(), testbed.NodesPath+"?overcommitted=true", &answer))
	var names []string
	for _, node := range answer.Nodes {
		require.True(c.T, node.Overcommitted)
		names = append(names, node.Name)
	}
	return names
}

// TestPodChangesUnderItsBind changes a pod that was decided on, while its Binding is on the way to the API server.
func TestPodChangesUnderItsBind(t *testing.T) {
	c := newProxiedCluster(t, 1)
	c.Create(testbed.NewPod("other", nobody, "2"))
	require.Empty(t, c.Bind(c.Pod("other"), "node-0"))
	c.run("it asks for more", func(c *cluster) {
		pod := c.CreatePod("grows", nobody, "2")
		refusal := c.BindHeld(pod, "node-0", func() {
			c.patchPod("grows", `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"3"}}}]}}`, "resize")
		})
		require.Contains(c.T, refusal, "it has changed")
		require.Contains(c.T, c.Bind(pod, "node-0"), "requested 3 CPU, 2 free")
		require.Empty(c.T, c.Pod("grows").Spec.NodeName)
	})
	c.run("it has another condition", func(c *cluster) {
		pod := c.CreatePod("tried", nobody, "2")
		require.Empty(c.T, c.BindHeld(pod, "node-0", func() {
			c.patchPod("tried", `{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}}`,
				"status")
		}))
		require.Equal(c.T, "node-0", c.Pod("tried").Spec.NodeName)
	})
	c.RequireNeverOvercommitted()
	c.requireAgreement()
	c.requireNoDriftSeen()
}

func (c *cluster) patchPod(name, patch, subresource string) {
	c.T.Helper()
	_, err := c.Client().CoreV1().Pods(c.Namespace).Patch(c.T.Context(), name, types.StrategicMergePatchType,
		[]byte(patch),
		metav1.PatchOptions{}, subresource)
	require.NoError(c.T, err)
}
