//go:build e2e

package gangs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
)

var podGroups = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}

// The server may patch PodGroups, and the API server lets it change nothing there but its annotation.
func testRightsToPodGroups(t *testing.T, c *cluster, name string) {
	t.Helper()
	admin, err := c.Resource(clusterload.PodGroup(c.Namespace, name, gangSize), c.Namespace)
	require.NoError(t, err)
	_, err = admin.Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"mine": "a"}, "labels": {"team": "a"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	server := c.AsServer().Resource(podGroups).Namespace(c.Namespace)
	for what, patch := range map[string]string{
		"minimum":                `{"spec": {"minMember": 1}}`,
		"label":                  `{"metadata": {"labels": {"role": "x"}}}`,
		"label taken off":        `{"metadata": {"labels": {"team": null}}}`,
		"generated name":         `{"metadata": {"generateName": "x-"}}`,
		"finalizer":              `{"metadata": {"finalizers": ["a.b/c"]}}`,
		"owner":                  `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}}`,
		"another's annotation":   `{"metadata": {"annotations": {"other": "x"}}}`,
		"an annotation's end":    `{"metadata": {"annotations": {"mine": null}}}`,
		"an annotation's change": `{"metadata": {"annotations": {"mine": "b"}}}`,
	} {
		_, err := server.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
		assert.ErrorContains(t, err, "GlobalReserve changes nothing of", what)
	}
	again := `{"metadata": {"annotations": {"` + v1alpha1.RetryAnnotation + `": "again"}}}`
	_, err = server.Patch(t.Context(), name, types.MergePatchType, []byte(again), metav1.PatchOptions{})
	assert.NoError(t, err)

	// A scheduler with the ledger and Coscheduling in its process may do what Coscheduling does.
	defer c.LetServerDelete("scheduling.x-k8s.io", "podgroups")()
	c.Eventually(func(t *assert.CollectT) {
		_, err := server.Patch(c.T.Context(), name, types.MergePatchType, []byte(`{"metadata": {"labels": {"role": "x"}}}`),
			metav1.PatchOptions{})
		assert.NoError(t, err)
	})
}
