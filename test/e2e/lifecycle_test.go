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
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestReadiness holds back the server's first look at the cluster. Until it has seen all of it, it is
// alive but not ready, and decides nothing.
func TestReadiness(t *testing.T) {
	c := newCluster(t, 1)
	kubeconfig, err := clusterload.ServerKubeconfig(t.Context(), c.ControlPlane)
	require.NoError(t, err)
	require.NotEmpty(t, kubeconfig)
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
	pod := c.create(newPod("pod", nobody, "1"))[0]
	started := make(chan struct{})
	port, err := c.FreePort()
	require.NoError(t, err)
	c.server = &testbed.Server{Caller: testbed.Caller{URL: "http://127.0.0.1:" + strconv.Itoa(port)}}
	go func() {
		defer close(started)
		in := *c // startServer sets its server only when that is ready
		in.startServer(clusterload.ServerOptions{Proxy: proxy, Port: port})
	}()
	eventually(t, soon, func(t *assert.CollectT) {
		r, err := c.server.Send(c.t.Context(), http.MethodGet, "/livez", nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, r.Status)
	})
	status := func(method, path string, body any) (int, string) {
		r, err := c.server.Send(t.Context(), method, path, body)
		require.NoError(t, err)
		return r.Status, string(r.Body)
	}
	code, text := status(http.MethodGet, "/readyz", nil)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, text, "not read all nodes and pods")
	require.Contains(t, c.bind(t, pod, "node-0"), "not read all nodes and pods")
	code, text = status(http.MethodPost, "/reserve", groupOf(c.create(newPod("worker", nobody, "1")), "node-0"))
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, text, "not read all")
	require.Contains(t, text, `"FailedPods":["worker"]`, "what is not granted is named")
	names := []string{"node-0"}
	require.NotEmpty(t, c.filter(t, &extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}).Error)
	code, _ = status(http.MethodGet, "/v1/nodes", nil)
	require.Equal(t, http.StatusServiceUnavailable, code)
	for _, path := range []string{"/healthz", "/metrics", "/version"} {
		code, _ = status(http.MethodGet, path, nil)
		require.Equal(t, http.StatusOK, code, path)
	}
	open()
	<-started
	require.Empty(t, c.bind(t, pod, "node-0"))
	c.requireAgreement()
}

// TestGracefulStop asks the server to end while binds are under way: all of them get their answer.
func TestGracefulStop(t *testing.T) {
	c, proxy := newProxiedCluster(t, 4)
	proxy.SetFault(func(r *http.Request) controlplane.Fault {
		if controlplane.IsBinding(r) {
			return controlplane.Fault{After: time.Second}
		}
		return controlplane.Fault{}
	})
	pods := c.create(newPods(12, "pod", nobody, "1")...)
	answers := make([]string, len(pods))
	var callers sync.WaitGroup
	for i, pod := range pods {
		callers.Go(func() { answers[i] = c.bind(c.t, pod, "node-"+strconv.Itoa(i%4)) })
	}
	eventually(t, soon, func(t *assert.CollectT) {
		assert.Equal(t, int64(len(pods)), proxy.Faulted(), "binds under way")
	})
	watch := c.openWatch()
	require.NoError(t, c.server.Signal(syscall.SIGTERM))
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	code, err := c.server.Wait(ctx)
	require.NoError(t, err)
	require.Zero(t, code, "exit code after SIGTERM")
	callers.Wait()
	for i, answer := range answers {
		require.Empty(t, answer, "bind %d was cut off", i)
		require.NotEmpty(t, c.get(t, pods[i]).Spec.NodeName)
	}
	require.NoError(t, watch(), "a watcher is no reason to hang")
	proxy.SetFault(nil)
	require.NoError(t, c.server.Start(t.Context()))
	c.requireAgreement()
}

// openWatch opens /v1/watch and returns once it streams. The function it returns waits for its end.
func (c *cluster) openWatch() func() error {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.server.URL+"/v1/watch", nil)
	require.NoError(c.t, err)
	streaming, ended := make(chan int, 1), make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
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
	require.Equal(c.t, http.StatusOK, <-streaming)
	return func() error { return <-ended }
}

// TestRestart kills the server and checks what it knows afterwards: all that is bound, and nothing of
// reservations that were only in its memory.
func TestRestart(t *testing.T) {
	c := newServedCluster(t, 2)
	pods := c.create(newPods(4, "pod", nobody, "1")...)
	for i, pod := range pods {
		require.Empty(t, c.bind(t, pod, nodeOf(i)))
	}
	revision := c.claims(t).Revision
	require.True(t, granted(c.reserve(t, groupOf(c.create(newPod("worker", nobody, "1")), "node-0"))))
	require.NoError(t, c.server.Kill())
	require.NoError(t, c.server.Start(t.Context()))
	c.requireAgreement()
	require.Greater(t, c.claims(t).Revision, revision, "revisions never go back")
	require.Zero(t, c.metric(t, "globalreserve_bypassed_binds_total"), "what was bound before is no news")
}

// TestMetricNames checks the names that dashboards rely on, with their labels.
func TestMetricNames(t *testing.T) {
	c := newServedCluster(t, 1)
	c.startScheduler("default-scheduler", "default-scheduler.yaml")
	c.create(newPods(6, "pod", "default-scheduler", "1")...)
	c.awaitSettled(soon)
	bypass := c.create(newPod("stranger", nobody, "1"))[0]
	c.bindDirectly(bypass, "node-0")
	refused := c.create(newPod("refused", nobody, "1"))[0]
	require.NotEmpty(t, c.bind(t, refused, "node-0"))
	names := map[string][]string{
		"globalreserve_requests_total":           {"verb", "code"},
		"globalreserve_request_duration_seconds": {"verb"},
		"globalreserve_decisions_total":          {"verb", "scheduler", "result"},
		"globalreserve_conflicts_total":          {"scheduler", "resource"},
		"globalreserve_claims":                   {"state"},
		"globalreserve_nodes":                    nil,
		"globalreserve_overcommitted_nodes":      nil,
		"globalreserve_bypassed_binds_total":     {"scheduler"},
		"globalreserve_wakeups_total":            nil,
		"globalreserve_ledger_drift":             {"kind"},
		driftFound:                               {"kind"},
	}
	eventually(t, soon, func(t *assert.CollectT) {
		metrics := c.scrape(t)
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
		ctx, cancel := context.WithTimeout(t.Context(), soon)
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
