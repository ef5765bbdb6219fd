//go:build e2e

package install

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

var rendered []rendering // once for all tests

// renderings are all that people apply.
func renderings(t *testing.T) []rendering {
	t.Helper()
	if rendered == nil {
		rendered = overlays(t)
		for name, values := range charts {
			rendered = append(rendered, rendering{"chart: " + name, helm(t, values...)})
		}
		slices.SortFunc(rendered, func(a, b rendering) int { return strings.Compare(a.name, b.name) })
	}
	return rendered
}

// The API server takes every object of every overlay, and of the chart in every mode, and admits the pods of the
// Deployments under the Pod Security level of the namespace.
func TestServerSideDryRun(t *testing.T) {
	c := newCluster(t)
	for _, r := range renderings(t) {
		t.Run(r.name, func(t *testing.T) {
			for _, object := range r.objects {
				require.NoError(t, c.apply(t, object, true))
			}
			for _, pod := range pods(t, r.objects) {
				_, err := c.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{
					DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
				})
				assert.NoError(t, err, "the pod of %s", pod.Name)
			}
		})
	}
}

// apply is kubectl apply --server-side, with --dry-run=server or not.
func (c *cluster) apply(t *testing.T, object *unstructured.Unstructured, dryRun bool) error {
	t.Helper()
	resource, err := c.Resource(object, namespace)
	require.NoError(t, err)
	content, err := json.Marshal(object)
	require.NoError(t, err)
	options := metav1.PatchOptions{
		FieldManager: "install", Force: ptr.To(true),
		FieldValidation: metav1.FieldValidationStrict,
	}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if _, err = resource.Patch(t.Context(), object.GetName(), types.ApplyPatchType, content, options); err != nil {
		return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// install applies for good what is not there from the beginning. The webhooks come last, when there is who answers
// them.
func (c *cluster) install(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		kind := object.GetKind()
		if kind == "CustomResourceDefinition" || strings.Contains(kind, "AdmissionPolicy") ||
			strings.HasSuffix(kind, "WebhookConfiguration") {
			continue
		}
		require.NoError(t, c.apply(t, object, false))
	}
}

// pods are those that the Deployments make, and the static pod that the chart has in a file.
func pods(t *testing.T, objects []*unstructured.Unstructured) (all []*corev1.Pod) {
	t.Helper()
	for _, object := range objects {
		var template map[string]any
		switch {
		case object.GetKind() == "Deployment":
			var err error
			template, _, err = unstructured.NestedMap(object.Object, "spec", "template")
			require.NoError(t, err)
		case object.GetName() == "globalreserve-static-pod":
			template = documents(t, []byte(staticFile(t, objects, "globalreserve.yaml")))[0].Object
		default:
			continue
		}
		content, err := json.Marshal(template)
		require.NoError(t, err)
		pod := &corev1.Pod{}
		require.NoError(t, json.Unmarshal(content, pod))
		if pod.Namespace == "" {
			pod.Name, pod.Namespace = object.GetName(), object.GetNamespace()
		}
		all = append(all, pod)
	}
	return all
}

// createNamespace makes that of the server, with its Pod Security level.
func (c *cluster) createNamespace(t *testing.T) {
	t.Helper()
	err := c.apply(t, find(t, kustomize(t, testbed.File(t, "manifests", "base")), "Namespace", namespace), false)
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
}
