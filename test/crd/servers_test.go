package crd

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// foreign is what a server must not change of the metadata of an object of others.
var foreign = map[string]string{
	"label":                         `{"metadata": {"labels": {"role": "x"}}}`,
	"label taken off":               `{"metadata": {"labels": {"mine": null}}}`,
	"finalizer":                     `{"metadata": {"finalizers": ["a.b/c"]}}`,
	"its own name in another place": `{"metadata": {"finalizers": ["globalreserve.io/retry"]}}`,
	"owner":                         `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}}`,
	"another's annotation":          `{"metadata": {"annotations": {"other": "x"}}}`,
	"an empty one":                  `{"metadata": {"annotations": {"other": ""}}}`,
	"an annotation's end":           `{"metadata": {"annotations": {"mine": null}}}`,
	"an annotation's change":        `{"metadata": {"annotations": {"mine": "b"}}}`,
}

// servableKind is a kind of objects that a server may patch.
type servableKind struct {
	resource      schema.GroupVersionResource
	subresources  []string
	notNamespaced bool
	refused       map[string]string // beside what is foreign
	allowed       []string
}

var servable = []servableKind{
	{
		resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, notNamespaced: true,
		refused: map[string]string{
			"taint":  `{"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}`,
			"cordon": `{"spec": {"unschedulable": true}}`,
			"more than is compared": `{"metadata": {"annotations": {"other": "x"}, "finalizers": ["a.b/c"` +
				strings.Repeat(`, "a.b/c"`, 60000) + `]}}`,
		},
		allowed: []string{`{"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}`},
	},
	{
		resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		refused: map[string]string{
			"deadline": `{"spec": {"activeDeadlineSeconds": 1}}`,
			"image":    `{"spec": {"containers": [{"name": "c", "image": "other"}]}}`,
		},
		allowed: []string{
			`{"metadata": {"annotations": {"globalreserve.io/retry": "a"}}}`,
			`{"metadata": {"annotations": {"globalreserve.io/binding-withdrawn": "a", "globalreserve.io/retry": null}}}`,
			`{"metadata": {"annotations": {"globalreserve.io/extended-resources": "gpu-0"}}}`,
		},
	},
	{
		resource:     schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		subresources: []string{"status"},
		refused: map[string]string{
			"phase":           `{"status": {"phase": "Running"}}`,
			"address":         `{"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}`,
			"what is there":   `{"status": {"message": null}}`,
			"another message": `{"status": {"message": "b"}}`,
			"ready":           `{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`,
			"scheduled":       `{"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}`,
			"more than is compared": `{"status": {"conditions": [{"type": "Ready", "status": "True"}` +
				strings.Repeat(`, {"type": "a", "status": "True"}`, 70000) + `]}}`,
		},
		allowed: []string{
			`{"metadata": {"annotations": {"globalreserve.io/retry": "b"}}, "status": {"nominatedNodeName": "node-0"}}`,
			`{"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "R", "message": "m"}]}}`,
			`{"status": {"nominatedNodeName": null}}`,
		},
	},
	{
		resource: schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"},
		allowed:  []string{`{"metadata": {"annotations": {"globalreserve.io/allocation-withdrawn": "a"}}}`},
	},
	{
		resource: schema.GroupVersionResource{
			Group: "globalreserve.io", Version: "v1alpha1", Resource: "extendedresourceclaims",
		},
		allowed: []string{`{"metadata": {"finalizers": ["globalreserve.io/extended-resource-claim-in-use"]}}`},
	},
}

// The API server lets a server change nothing of the objects of others but what it is for.
func (s *suite) testServers(t *testing.T) {
	c := testbed.Cluster{ControlPlane: s.ControlPlane, T: t, Namespace: "servers", Objects: s.Objects}
	require.NoError(t, s.CreateNamespace(t.Context(), c.Namespace))
	require.NoError(t, s.ControlPlane.Apply(t.Context(), []byte(served), c.Namespace))
	_, err := s.Client().CoreV1().Pods(c.Namespace).Patch(t.Context(), "served", types.MergePatchType,
		[]byte(`{"status": {"message": "a"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	server := c.AsServer()
	for _, o := range servable {
		what := o.resource.Resource
		objects := server.Resource(o.resource).Namespace(c.Namespace)
		if o.notNamespaced {
			objects = server.Resource(o.resource)
		}
		refused := maps.Clone(foreign)
		maps.Copy(refused, o.refused)
		patch := func(patch string, dryRun ...string) error {
			_, err := objects.Patch(t.Context(), "served", types.MergePatchType, []byte(patch),
				metav1.PatchOptions{DryRun: dryRun}, o.subresources...)
			return err
		}
		// The API server has the policy a moment after it is made. What it lets through before must change nothing: the
		// same again would be no change, and not be refused.
		c.Eventually(func(t *assert.CollectT) {
			err := patch(foreign["label"], metav1.DryRunAll)
			assert.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
		})
		if o.subresources != nil {
			delete(refused, "owner") // which a write of the status leaves as it was
		}
		for name, text := range refused {
			err := patch(text)
			assert.True(t, apierrors.IsForbidden(err), "%s, %s: %v", what, name, err)
			assert.ErrorContains(t, err, "GlobalReserve changes nothing of", "%s, %s", what, name)
		}
		for _, text := range o.allowed {
			assert.NoError(t, patch(text), "%s, %s", what, text)
		}
	}

	// A scheduler with the ledger in its process evicts pods, and writes devices into claims.
	defer c.LetServerDelete("", "pods")()
	for _, resource := range []string{"pods", "resourceclaims"} {
		i := slices.IndexFunc(servable, func(o servableKind) bool { return o.resource.Resource == resource })
		c.Eventually(func(t *assert.CollectT) {
			_, err := server.Resource(servable[i].resource).Namespace(c.Namespace).Patch(c.T.Context(), "served",
				types.MergePatchType, []byte(foreign["label"]), metav1.PatchOptions{})
			assert.NoError(t, err)
		})
	}
}

const served = `
apiVersion: v1
kind: Node
metadata: {name: served, labels: {mine: a}, annotations: {mine: a}}
---
apiVersion: v1
kind: Pod
metadata: {name: served, labels: {mine: a}, annotations: {mine: a}}
spec: {schedulerName: none, containers: [{name: c, image: i}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: served, labels: {mine: a}, annotations: {mine: a}}
spec: {devices: {requests: [{name: a, exactly: {deviceClassName: a}}]}}
---
apiVersion: globalreserve.io/v1alpha1
kind: ExtendedResourceClaim
metadata: {name: served, labels: {mine: a}, annotations: {mine: a}}
spec: {resourceName: example.com/gpu, count: 1}
`
