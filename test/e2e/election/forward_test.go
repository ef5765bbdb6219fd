package election

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/election/forward"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// Every integration path works by the URL of a server that does not decide.
func TestAnyServerAnswers(t *testing.T) {
	c := newCluster(t, shared.StartT(t), 3)
	webhook, err := clusterload.NewWebhook(c.ControlPlane)
	require.NoError(t, err)
	leader := c.start("leader", nil, clusterload.SlowLease...)
	c.awaitLeader(leader)
	follower := testbed.StartServer(t, c.ControlPlane, clusterload.ServerOptions{Name: "follower", Args: slices.Concat(webhook.Args, clusterload.SlowLease)})
	other := testbed.StartServer(t, c.ControlPlane, clusterload.ServerOptions{Name: "other", Args: clusterload.SlowLease})
	c.servers = append(c.servers, follower, other)
	require.True(t, decides(t.Context(), leader))
	require.False(t, decides(t.Context(), follower) || decides(t.Context(), other))
	c.Ledger = follower.Caller

	t.Run("reserve", func(t *testing.T) {
		pod := c.CreatePod("reserved", nobody, "1")
		request := &reserver.Request{SchedulerName: nobody, Pods: []*corev1.Pod{pod}, Nodes: c.nodes[:1], TTLSeconds: 600}
		assert.Empty(t, c.Reserve(request).Error)
		ours, theirs := c.Held(), (&testbed.Cluster{T: t, Ledger: leader.Caller}).Held()
		assert.NotEmpty(t, ours)
		assert.Equal(t, theirs, ours)
		assert.Empty(t, c.Unreserve(request).Error)
		assert.Empty(t, c.Held())
		assert.Empty(t, c.Bind(pod, c.nodes[0]))
	})
	t.Run("answers", func(t *testing.T) {
		args := extenderv1.ExtenderArgs{Pod: c.CreatePod("asked", nobody, "1"), NodeNames: &c.nodes}
		got, err := c.Ledger.Send(t.Context(), http.MethodPost, testbed.FilterPath, args)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, got.Status)
		assert.Equal(t, fmt.Sprint(len(got.Body)), got.Header.Get("Content-Length"))
		direct, err := leader.Send(t.Context(), http.MethodPost, testbed.FilterPath, args)
		require.NoError(t, err)
		assert.NotEmpty(t, direct.Header.Get(forward.ServerHeader))
		assert.Equal(t, direct.Header.Get(forward.ServerHeader), got.Header.Get(forward.ServerHeader))
		var result extenderv1.ExtenderFilterResult
		require.NoError(t, json.Unmarshal(got.Body, &result))
		assert.Empty(t, result.Error)
		reply, err := c.Ledger.Send(t.Context(), http.MethodPost, "/admission", struct{}{})
		require.NoError(t, err)
		assert.Empty(t, reply.Header.Get(forward.ServerHeader), "the webhook is not for those who speak plain HTTP: %s", reply.Body)
	})
	t.Run("watch", func(t *testing.T) { c.watches(t, follower) })
	t.Run("kubectl", func(t *testing.T) {
		config, err := c.AdminKubeconfig()
		require.NoError(t, err)
		command := exec.CommandContext(t.Context(), testbed.File(t, "bin", "kubectl-reserve"), "nodes", "--ledger-url="+other.URL)
		command.Env = append(os.Environ(), "KUBECONFIG="+config, "HOME="+t.TempDir())
		output, err := command.CombinedOutput()
		require.NoError(t, err, "%s", output)
		for _, node := range c.nodes {
			assert.Contains(t, string(output), node)
		}
	})
	t.Run("admission", func(t *testing.T) {
		require.NoError(t, webhook.Install(t.Context(), c.ControlPlane, nil))
		c.CreatePod("naive", nobody, "1")
		require.NoError(t, c.BindDirectly("naive", c.nodes[1]))
		c.CreatePod("too-large", nobody, "4")
		require.Error(t, c.BindDirectly("too-large", c.nodes[1]))
		c.Eventually(func(t *assert.CollectT) { // a review is counted when it is answered
			granted, err := leader.Metric(c.T.Context(), "globalreserve_decisions_total", "verb", "admission", "result", "granted")
			require.NoError(t, err)
			assert.Positive(t, granted, "the server that decides did so")
		})
	})
	t.Run("kube-scheduler", func(t *testing.T) {
		c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
		c.Create(testbed.NewPods(6, "scheduled", "default-scheduler", "1")...)
		for i := range 6 {
			c.AwaitBound(fmt.Sprint("scheduled-", i))
		}
	})
	c.RequireNeverOvercommitted()
}

// watches shows that events of a stream come at once.
func (c *cluster) watches(t *testing.T, server *testbed.Server) {
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Soon)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+testbed.WatchPath, http.NoBody)
	require.NoError(t, err)
	response, err := testbed.Streaming.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	await := func(text string) {
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		require.NoError(t, lines.Err())
		require.Fail(t, "the stream ended before "+text)
	}
	await("event: bookmark")
	pod := c.CreatePod("watched", nobody, "100m")
	require.Empty(t, c.Bind(pod, c.nodes[2]))
	await(`"watched"`)
}

// While the server that decides is replaced, those who ask another one wait for a while. What they are told is true:
// who repeats what was not answered loses nothing.
func TestHandover(t *testing.T) {
	c := newCluster(t, shared.StartT(t), 20)
	for i := range 3 {
		server := c.start(fmt.Sprint("server-", i), nil, clusterload.SlowLease...)
		if i == 0 {
			c.awaitLeader(server)
		}
	}
	leader := c.servers[0]
	pods := c.Create(testbed.NewPods(60, "p", nobody, "1")...)
	var mu sync.Mutex
	var worst time.Duration
	refused := 0
	bind := func(server *testbed.Server, pod *corev1.Pod, node string) {
		for began := time.Now(); ; {
			answer, err := server.TryBind(t.Context(), pod, node)
			mu.Lock()
			if err == nil && answer == "" {
				worst = max(worst, time.Since(began))
				mu.Unlock()
				return
			}
			refused++
			mu.Unlock()
			if time.Since(began) > testbed.Soon {
				assert.Fail(t, "not bound", "%s %v", answer, err)
				return
			}
		}
	}
	var running sync.WaitGroup
	for i, chunk := range slices.Collect(slices.Chunk(pods, 30)) {
		running.Go(func() {
			for j, pod := range chunk {
				bind(c.servers[1+i], pod, c.nodes[(i*30+j)%len(c.nodes)])
				if i == 0 && j == 10 {
					running.Go(func() { _, _ = leader.Stop() })
				}
			}
		})
	}
	running.Wait()
	t.Logf("the longest bind took %s, and %d answers were to ask again", worst.Round(time.Millisecond), refused)
	c.RequireNeverOvercommitted()
	assert.Len(t, testbed.Bound(c.Pods()), len(pods))
}
