//go:build e2e

package controlplane

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// A request that is held back has not taken effect, and one that is lost takes none: a test that has the proxy lose
// requests would not notice where it loses none.
func TestFaultProxy(t *testing.T) {
	c := StartT(t, Options{})
	_, err := c.CreateNodes(t.Context(), 1, NodeTemplate{})
	require.NoError(t, err)
	proxy, err := c.StartFaultProxy()
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(proxy.RESTConfig("binder", AdminGroup))
	require.NoError(t, err)
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
			pod, err := pods.Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
				Spec: corev1.PodSpec{
					SchedulerName: "none", Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}},
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			isNow := func() bool {
				pod, err := c.Client().CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
				return err == nil && pod.Spec.NodeName != ""
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
