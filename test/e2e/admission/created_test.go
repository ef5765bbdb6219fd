//go:build e2e

package admission

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// place creates a pod on node-0.
func (c *cluster) place(name, cpu string, changes ...func(*corev1.Pod)) error {
	pod := testbed.NewPod(name, naive, cpu, slices.Concat([]func(*corev1.Pod){onNode0}, changes)...)
	pod.Namespace = c.Namespace
	_, err := c.Client().CoreV1().Pods(c.Namespace).Create(c.T.Context(), pod, metav1.CreateOptions{})
	return err
}

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
func (c *cluster) refusedByAnother(t *testing.T) {
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
}
