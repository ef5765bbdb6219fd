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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
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

// asAWhole has a pod be limited as a whole, and request nothing: the API server fills that in when all webhooks have
// seen it.
func asAWhole(cpu string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}
	}
}

// declareResizes has a node say that its kubelet resizes pods that request something as a whole.
func (c *cluster) declareResizes(node string) {
	c.T.Helper()
	object, err := c.Client().CoreV1().Nodes().Get(c.T.Context(), node, metav1.GetOptions{})
	require.NoError(c.T, err)
	object.Status.DeclaredFeatures = []string{"InPlacePodLevelResourcesVerticalScaling"}
	_, err = c.Client().CoreV1().Nodes().UpdateStatus(c.T.Context(), object, metav1.UpdateOptions{})
	require.NoError(c.T, err)
}

// What the API server fills in after the webhook counts before it is stored, of pods that come with a node and of
// resizes.
func TestPodsLimitedAsAWhole(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.declareResizes("node-0")
	c.run(t, map[string]func(*testing.T, *cluster){
		"created": func(t *testing.T, c *cluster) {
			pods := c.Client().CoreV1().Pods(c.Namespace)
			_, err := pods.Create(t.Context(), testbed.NewPod("large", naive, "0", onNode0, asAWhole("5")),
				metav1.CreateOptions{})
			require.ErrorContains(t, err, "requested 5 CPU, 4 free")
			c.create("whole", "0", onNode0, asAWhole("4"))
			c.Eventually(func(t *assert.CollectT) { assert.EqualValues(t, 4000, c.bound()) })
			_, err = pods.Create(t.Context(), testbed.NewPod("more", naive, "1", onNode0), metav1.CreateOptions{})
			require.ErrorContains(t, err, "0 free")
		},
		"resized": func(t *testing.T, c *cluster) {
			c.create("other", "1", onNode0)
			pod := c.create("whole", "0", onNode0, asAWhole("1"))
			require.Equal(t, "1", pod.Spec.Resources.Requests.Cpu().String(), "the API server is one that fills it in")
			resize := func(cpu string, dryRun ...string) error {
				pod := c.Pod("whole")
				asAWhole(cpu)(pod)
				_, err := c.Client().CoreV1().Pods(c.Namespace).UpdateResize(t.Context(), "whole", pod,
					metav1.UpdateOptions{DryRun: dryRun})
				return err
			}
			c.Eventually(func(t *assert.CollectT) {
				assert.NoError(t, resize("2", metav1.DryRunAll), "the API server has seen what the node declares")
			})
			require.ErrorContains(t, resize("4"), "requested 3 CPU, 2 free")
			require.NoError(t, resize("3"))
			c.Eventually(func(t *assert.CollectT) { assert.EqualValues(t, 4000, c.bound()) })
		},
		"filled in before": filledInBefore,
	})
}

// What the API server fills in before the webhook counts, too: what a LimitRange requests, and a RuntimeClass adds.
func filledInBefore(t *testing.T, c *cluster) {
	limited := *c
	limited.Cluster = c.In(t, "limited")
	limited.Apply(`
apiVersion: v1
kind: LimitRange
metadata: {name: defaults}
spec: {limits: [{type: Container, defaultRequest: {cpu: 3}}]}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: heavy}
handler: heavy
overhead: {podFixed: {cpu: 500m}}
`)
	create := func(name string, options metav1.CreateOptions) (*corev1.Pod, error) {
		pod := testbed.NewPod(name, naive, "0", onNode0, func(pod *corev1.Pod) {
			pod.Namespace, pod.Spec.RuntimeClassName = limited.Namespace, new("heavy")
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		})
		return c.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, options)
	}
	c.Eventually(func(t *assert.CollectT) {
		pod, err := create("probe", metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err)
		assert.NotEmpty(t, pod.Spec.Containers[0].Resources.Requests, "the API server has seen the LimitRange")
	})
	_, err := create("first", metav1.CreateOptions{})
	require.NoError(t, err)
	defer limited.Delete("first")
	c.Eventually(func(t *assert.CollectT) { assert.EqualValues(t, 3500, c.bound()) })
	_, err = create("second", metav1.CreateOptions{})
	require.ErrorContains(t, err, "requested 3.5 CPU, 0.5 free")
}

// A pod that is created with a node has nothing in its annotations that tells of what it was not given.
func TestForgedRecords(t *testing.T) {
	c := newCluster(t, 1, nil)
	pod := c.create("p", "1", onNode0, testbed.Annotated(
		"other", "kept", v1alpha1.CallerAnnotation, "forged", v1alpha1.ExtendedResourcesAnnotation, "gpu-9",
		v1alpha1.MatchedReservationAnnotation, "default/forged/0", v1alpha1.MatchedReservationUIDAnnotation, "forged",
	))
	assert.Equal(t, "kept", pod.Annotations["other"])
	assert.NotEqual(t, "forged", pod.Annotations[v1alpha1.CallerAnnotation])
	for _, name := range []string{
		v1alpha1.ExtendedResourcesAnnotation, v1alpha1.MatchedReservationAnnotation, v1alpha1.MatchedReservationUIDAnnotation,
	} {
		assert.NotContains(t, pod.Annotations, name)
	}
}
