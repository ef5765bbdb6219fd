//go:build e2e

package controlplane

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestFaultProxy runs all tests of the proxy on one API server.
func TestFaultProxy(t *testing.T) {
	c := StartT(t, Options{})
	_, err := c.CreateNodes(t.Context(), 1, NodeTemplate{})
	require.NoError(t, err)
	proxy, err := c.StartFaultProxy()
	require.NoError(t, err)
	t.Run("faults", func(t *testing.T) { testFaults(t, c, proxy) })
	t.Run("the API server's end", func(t *testing.T) { testServerEnd(t, c, proxy) })
}

func newClient(t *testing.T, config *rest.Config, err error) kubernetes.Interface {
	t.Helper()
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

func testFaults(t *testing.T, c *ControlPlane, proxy *FaultProxy) {
	config, err := proxy.RESTConfig("binder", AdminGroup)
	client := newClient(t, config, err)
	for name, test := range map[string]struct {
		lost    bool
		givesUp bool // the client does, while its request is held back
		fails   func(error) bool
	}{
		"the request is held back": {},
		"the request is lost":      {lost: true, fails: isConnectionError},
		"the client gives up":      {givesUp: true, fails: gaveUp},
	} {
		t.Run(name, func(t *testing.T) {
			pods := client.CoreV1().Pods("default")
			proxy.SetFault(nil)
			pod := testPod("", "none", "1m")
			pod.GenerateName = "pod-"
			pod, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
			require.NoError(t, err)
			isNow := func() bool {
				pod, err := c.Client().CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
				return err == nil && isBound(pod)
			}

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wasBound atomic.Bool
			ended := make(chan struct{})
			proxy.SetFault(func(r *http.Request) bool {
				if !IsBinding(r) {
					return false
				}
				defer close(ended)
				wasBound.Store(isNow())
				if test.givesUp {
					cancel()
					<-r.Context().Done()
				}
				return test.lost
			})
			err = pods.Bind(ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
				Target:     corev1.ObjectReference{Kind: "Node", Name: "node-0"},
			}, metav1.CreateOptions{})
			<-ended
			require.False(t, wasBound.Load(), "before it was passed on")
			if test.fails == nil {
				require.NoError(t, err)
			} else {
				require.True(t, test.fails(err), "%v", err)
			}
			require.Equal(t, test.fails == nil, isNow())
		})
	}
}

func isConnectionError(err error) bool {
	var status apierrors.APIStatus
	return err != nil && !errors.As(err, &status) && !gaveUp(err)
}

func gaveUp(err error) bool { return errors.Is(err, context.Canceled) }

// testServerEnd kills the API server behind the proxy. It comes last: it stops the proxy.
func testServerEnd(t *testing.T, c *ControlPlane, proxy *FaultProxy) {
	proxy.SetFault(nil)
	config, err := proxy.RESTConfig(AdminUser, AdminGroup)
	client := newClient(t, config, err)
	watch, err := client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watch.Stop()
	select {
	case event := <-watch.ResultChan():
		require.Equal(t, "node-0", event.Object.(*corev1.Node).Name, "watch events pass at once")
	case <-time.After(Patience):
		require.Fail(t, "no watch event came through the proxy")
	}
	create := func() error { // client-go sends nothing but reads twice
		_, err := client.CoreV1().Pods("default").Create(
			t.Context(), testPod("pod", "none", "1m"), metav1.CreateOptions{})
		return err
	}

	require.NoError(t, c.Kill(APIServer))
	for range watch.ResultChan() { // ends: the proxy passes the broken connection on
	}
	err = create()
	require.True(t, isConnectionError(err), "%v", err)
	require.NoError(t, c.StartPart(t.Context(), APIServer))
	require.NoError(t, create())
	require.NoError(t, proxy.Stop())
	require.NoError(t, proxy.Stop(), "stopping again does nothing")
	err = create()
	require.True(t, isConnectionError(err), "%v", err)
}
