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

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestGracefulStop asks the server to end while binds are under way: all of them get their answer.
func TestGracefulStop(t *testing.T) {
	c, proxy := newProxiedCluster(t, 4)
	var underWay sync.Map // by path
	stopping := make(chan struct{})
	proxy.SetFault(func(r *http.Request) (lost bool) {
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
	proxy.SetFault(nil)
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
