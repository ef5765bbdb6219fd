package e2e

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestReadiness holds back the server's first look at the cluster. Until it has seen all of it, it is
// alive but not ready, and decides nothing.
func TestReadiness(t *testing.T) {
	c := newCluster(t, 1)
	proxy, err := c.StartFaultProxy()
	require.NoError(t, err)
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if strings.HasSuffix(r.URL.Path, "/pods") && r.Method == http.MethodGet {
			<-gate
		}
		return controlplane.Fault{}
	})
	pod := c.CreatePod("pod", nobody, "1")
	started := make(chan struct{})
	port, err := c.FreePort()
	require.NoError(t, err)
	c.Ledger.URL = "http://127.0.0.1:" + strconv.Itoa(port)
	go func() {
		defer close(started)
		in := *c // startServer sets its server only when that is ready
		in.startServer(clusterload.ServerOptions{Proxy: proxy, Port: port, Args: clusterload.SlowLease})
	}()
	c.Eventually(func(t *assert.CollectT) {
		r, err := c.Ledger.Send(c.T.Context(), http.MethodGet, "/livez", nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, r.Status)
	})
	status := func(method, path string, body any) (int, string) {
		r, err := c.Ledger.Send(t.Context(), method, path, body)
		require.NoError(t, err)
		return r.Status, string(r.Body)
	}
	const why = "is taking over" // it is elected and has not read all pods yet
	c.Eventually(func(t *assert.CollectT) {
		code, text := status(http.MethodGet, "/readyz", nil)
		assert.Equal(t, http.StatusServiceUnavailable, code)
		assert.Contains(t, text, why)
	})
	require.Contains(t, c.Bind(pod, "node-0"), why)
	code, text := status(http.MethodPost, testbed.ReservePath, gangOf(c.Create(testbed.NewPod("worker", nobody, "1")), "node-0"))
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, text, why)
	require.Contains(t, text, `"FailedPods":["worker"]`, "what is not granted is named")
	_, err = c.Ledger.Filter(t.Context(), pod, "node-0")
	require.Error(t, err)
	code, _ = status(http.MethodGet, testbed.NodesPath, nil)
	require.Equal(t, http.StatusServiceUnavailable, code)
	for _, path := range []string{"/healthz", testbed.MetricsPath, "/version"} {
		code, _ = status(http.MethodGet, path, nil)
		require.Equal(t, http.StatusOK, code, path)
	}
	open()
	<-started
	require.Empty(t, c.Bind(pod, "node-0"))
	c.requireAgreement()
}

// TestGracefulStop asks the server to end while binds are under way: all of them get their answer.
func TestGracefulStop(t *testing.T) {
	c, proxy := newProxiedCluster(t, 4)
	var underWay sync.Map // by path
	stopping := make(chan struct{})
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if !controlplane.IsBinding(r) {
			return controlplane.Fault{}
		}
		underWay.Store(r.URL.Path, true)
		select {
		case <-stopping:
		case <-r.Context().Done():
		}
		return controlplane.Fault{After: requestTime / 4} // the server has to wait for it
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
	proxy.SetFault(nil)
	require.NoError(t, c.Server.Start(t.Context()))
	c.requireAgreement()
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

// TestMetricNames checks the names that dashboards rely on, with their labels.
func TestMetricNames(t *testing.T) {
	c := newServedCluster(t, 1)
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	c.Create(testbed.NewPods(6, "pod", "default-scheduler", "1")...)
	c.awaitSettled(late)
	bypass := c.CreatePod("stranger", nobody, "1")
	require.NoError(c.T, c.BindDirectly(bypass.Name, "node-0"))
	refused := c.CreatePod("refused", nobody, "1")
	require.NotEmpty(t, c.Bind(refused, "node-0"))
	names := map[string][]string{
		"globalreserve_requests_total":           {"verb", "code"},
		"globalreserve_request_duration_seconds": {"verb"},
		"globalreserve_decisions_total":          {"verb", "scheduler", "result"},
		"globalreserve_conflicts_total":          {"scheduler", "resource"},
		"globalreserve_allocations":              {"state"},
		"globalreserve_nodes":                    nil,
		"globalreserve_slots_in_memory":          nil,
		"globalreserve_overcommitted_nodes":      nil,
		"globalreserve_bypassed_binds_total":     {"scheduler"},
		"globalreserve_wakeups_total":            nil,
		"globalreserve_gang_touches_total":       {"result"},
		"globalreserve_ledger_drift":             {"kind"},
		driftFound:                               {"kind"},
	}
	c.Eventually(func(t *assert.CollectT) {
		metrics := c.Scrape()
		for name, labels := range names {
			family := metrics[name]
			if !assert.NotNil(t, family, name) {
				continue
			}
			var got []string
			for _, pair := range family.GetMetric()[0].GetLabel() {
				got = append(got, pair.GetName())
			}
			assert.ElementsMatch(t, labels, got, name)
		}
	})
}

// TestCommandLine checks what the binary says of itself, and of flags it cannot use.
func TestCommandLine(t *testing.T) {
	root, err := controlplane.RepositoryRoot()
	require.NoError(t, err)
	run := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), testbed.Soon)
		defer cancel()
		output, err := exec.CommandContext(ctx, filepath.Join(root, "bin", "globalreserve"), args...).CombinedOutput()
		return string(output), err
	}
	output, err := run("--version")
	require.NoError(t, err)
	require.Contains(t, output, "globalreserve version")
	for name, args := range map[string][]string{
		"kubeconfig":   {"--kubeconfig=/no/such/file"},
		"bind-address": {"--bind-address=0.0.0.0"},
		"port":         {"--port=70000"},
		"log-level":    {"--log-level=loud"},
		"log-format":   {"--log-format=xml"},
		"ttl":          {"--reservation-ttl=-1s"},
		"unknown":      {"--unknown"},
	} {
		output, err = run(args...)
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s: %s", name, output)
		require.Equal(t, 1, exit.ExitCode(), output)
		require.Contains(t, output, name)
	}
}
