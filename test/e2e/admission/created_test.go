//go:build e2e

package admission

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// place creates a pod on node-0.
func (c *cluster) place(name, cpu string, changes ...func(*corev1.Pod)) error {
	pod := testbed.NewPod(name, naive, cpu, slices.Concat([]func(*corev1.Pod){onNode0}, changes)...)
	pod.Namespace = c.Namespace
	_, err := c.Client().CoreV1().Pods(c.Namespace).Create(c.T.Context(), pod, metav1.CreateOptions{})
	return err
}

// Pods with a node that fit are all created, however many come at once.
func TestBurstOfPodsWithANode(t *testing.T) {
	c := newCluster(t, 5, nil)
	config, err := c.AdminRESTConfig()
	require.NoError(t, err)
	config.QPS = -1
	var late atomic.Int32
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if err == nil && answer.StatusCode == http.StatusTooManyRequests {
				late.Add(1)
			}
			return answer, err
		})
	})
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	var creating errgroup.Group
	for k := range 20 {
		creating.Go(func() error {
			pod := testbed.NewPod(fmt.Sprint("p", k), naive, "1", func(pod *corev1.Pod) {
				pod.Spec.NodeName = fmt.Sprint("node-", k%5)
			})
			_, err := client.CoreV1().Pods(c.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(t, creating.Wait())
	t.Logf("%d had to try again, as client-go does", late.Load()) // none, but on a busy machine
	c.RequireNeverOvercommitted()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// Creations that always fail keep no capacity where the API server sees before that they make no sense. Where another
// webhook refuses them at last, a namespace keeps a small share, and has to wait after that.
func TestCreationsThatNeverHappen(t *testing.T) {
	c := newCluster(t, 3, nil)
	for range 3 {
		require.True(t, apierrors.IsInvalid(c.place("senseless", "4", func(pod *corev1.Pod) {
			for range 2 {
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
					Name:         "v",
					VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
				})
			}
		})))
		assert.Zero(t, c.allocationsIn("Binding"))
	}

	tenant := *c
	tenant.Namespace = "tenant"
	require.NoError(t, c.CreateNamespace(t.Context(), tenant.Namespace))
	c.refusedByAnother(t)
	require.ErrorContains(t, tenant.place("first", "4", testbed.Annotated("refused", "yes")), "the other webhook")
	assert.Equal(t, 1, c.allocationsIn("Binding"), "it may be written yet, for all that is known")
	err := tenant.place("second", "1m", func(pod *corev1.Pod) { pod.Spec.NodeName = "node-1" })
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	require.ErrorContains(t, err,
		"pods of namespace tenant that were allowed to be created with a node are not there yet: 1")
	require.NoError(t, c.place("other", "4", func(pod *corev1.Pod) { pod.Spec.NodeName = "node-2" }), "another namespace")
}

// refusedByAnother has another webhook refuse pods with the annotation "refused".
func (c *cluster) refusedByAnother(t *testing.T) *otherHook {
	t.Helper()
	h := c.serveOtherHook()
	h.set(func(request *admissionv1.AdmissionRequest) bool {
		return !bytes.Contains(request.Object.Raw, []byte(`"refused"`))
	})
	c.installOtherHook(h.client, createdPods)
	probe := testbed.NewPod("probe", naive, "1m", testbed.Annotated("refused", "yes"))
	c.Eventually(func(t *assert.CollectT) {
		_, err := c.Client().CoreV1().Pods(c.Namespace).Create(c.T.Context(), probe,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		assert.ErrorContains(t, err, "the other webhook")
	})
	return h
}

// The second of two creations of one name comes when the first pod is gone again. It has what it was allowed from the
// beginning.
func TestTwoCreationsOfAName(t *testing.T) {
	c := newCluster(t, 20, nil)
	h := c.refusedByAnother(t)
	reached, released := make(chan struct{}), make(chan struct{})
	h.set(func(request *admissionv1.AdmissionRequest) bool {
		if bytes.Contains(request.Object.Raw, []byte("held-up")) {
			close(reached)
			<-released
		}
		return true
	})
	late := make(chan error, 1)
	go func() { late <- c.place("p", "3", testbed.Annotated("held-up", "yes")) }()
	select {
	case <-reached:
	case err := <-late:
		require.FailNow(t, "the creation does not reach the other webhook", "%v", err)
	case <-time.After(controlplane.Patience):
		require.FailNow(t, "the creation does not reach the other webhook")
	}
	// both webhooks are asked at once
	c.Eventually(func(t *assert.CollectT) { assert.Equal(t, 1, c.allocationsIn("Binding")) })
	require.NoError(t, c.place("p", "1m"))
	c.Eventually(func(t *assert.CollectT) { assert.Equal(t, 1, c.allocationsIn("Bound")) })
	c.Delete("p")
	c.Eventually(func(t *assert.CollectT) { assert.Zero(t, c.allocationsIn("Bound")) })
	require.ErrorContains(t, c.place("too-much", "2"), "too little cpu")
	close(released)
	require.NoError(t, <-late)
	c.RequireNeverOvercommitted()
}
