package devices

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// claimText is a claim as people write it.
func claimText(name, spec string) string {
	return "apiVersion: globalreserve.io/v1alpha1\nkind: ExtendedResourceClaim\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

const goodClaim = `{resourceName: nvidia.com/gpu, count: 1, selector: {matchProperties: {model: K80}}}`

// badClaims are pods whose claims cannot be met or used, by the name of their claim.
var badClaims = map[string]struct {
	spec       string // of the claim; empty: there is none
	refused    string // by the API server, with this
	annotation string // of the pod; empty: the claim's name
	reason     string // of the Event on the pod; empty: DeviceClaimUnusable
	event      string // a part of it
}{
	"missing": {event: "there is no ExtendedResourceClaim missing in namespace default: create it there"},
	"wrong-resource": {
		spec: `{resourceName: amd.com/gpu, count: 1}`, reason: "InsufficientDevices",
		event: "ExtendedResourceClaim wrong-resource asks for 1 amd.com/gpu: no node has these devices",
	},
	"too-many": {
		spec: `{resourceName: nvidia.com/gpu, count: 64}`, reason: "InsufficientDevices",
		event: "ExtendedResourceClaim too-many asks for 64 nvidia.com/gpu: no node has these devices",
	},
	"no-such-device": {
		spec: `{resourceName: nvidia.com/gpu, count: 1, extendedResourceNames: [gpu-99]}`, reason: "InsufficientDevices",
		event: "ExtendedResourceClaim no-such-device asks for",
	},
	"count-zero": {
		spec: `{resourceName: nvidia.com/gpu, count: 0}`, refused: "should be greater than or equal to 1",
		event: "ExtendedResourceClaim count-zero cannot be used: spec.count",
	},
	"bad-selector": {
		spec:    `{resourceName: nvidia.com/gpu, count: 1, selector: {matchExpressions: [{key: memory, operator: Gt, values: [lots]}]}}`,
		refused: "Gt and Lt need one value that is a number or a quantity",
		event:   "ExtendedResourceClaim bad-selector cannot be used: spec.selector",
	},
	"bad-operator": {
		spec:    `{resourceName: nvidia.com/gpu, count: 1, selector: {matchExpressions: [{key: memory, operator: Like, values: [x]}]}}`,
		refused: "Unsupported value",
		event:   "ExtendedResourceClaim bad-operator cannot be used: spec.selector",
	},
	"elsewhere": {event: "claims of other namespaces cannot be used"},
	"slash":     {annotation: "other/slash", event: "other/slash"},
	"capitals":  {annotation: "K80_ERC", event: "K80_ERC"},
	"twice":     {annotation: "twice,twice", event: "twice is named twice"},
	"commas":    {annotation: ",", event: "extended-resource-claims"},
	"crowd":     {annotation: strings.TrimSuffix(strings.Repeat("c,", 17), ","), event: "extended-resource-claims"},
}

// TestBadClaims has pods wait whose claims cannot be used, until these are mended.
func TestBadClaims(t *testing.T) {
	c := newCluster(t, setup{own: &controlplane.Options{}, nodes: 2}) // it changes a definition
	other := c.In(t, "other")
	other.CreateDeviceClaim("elsewhere", "K80", 1)
	for i := range badClaims {
		c.CreateDevice("gpu-"+i, "node-1", "K80")
	}
	c.startScheduler(scheduler)
	for name, bad := range badClaims {
		if bad.refused != "" {
			require.ErrorContains(t, c.tryApply(claimText(name, bad.spec)), bad.refused)
		}
	}
	c.forgetValidation()
	for name, bad := range badClaims {
		if bad.spec != "" {
			c.Eventually(func(t *assert.CollectT) { // the definition takes a moment
				assert.NoError(t, c.tryApply(claimText(name, bad.spec)))
			})
		}
	}
	server := c.Server.PID()

	for name, bad := range badClaims {
		t.Run(name, func(t *testing.T) {
			c := c.in(t)
			annotation := name
			if bad.annotation != "" {
				annotation = bad.annotation
			}
			c.create(name, scheduler, annotation)
			require.Contains(t, c.AwaitRefused(name), "GlobalReserve: ")
			reason := "DeviceClaimUnusable"
			if bad.reason != "" {
				reason = bad.reason
			}
			c.AwaitEvent("Pod", name, reason, bad.event)
			require.Empty(t, c.Pod(name).Spec.NodeName)
			explained := c.kubectlReserve("explain", name)
			require.Contains(t, explained, reason)
			if bad.reason == "" {
				require.Contains(t, explained, bad.event, "explain says what the Event says")
			}
		})
	}
	c.removeBadClaims()
	for name := range badClaims {
		t.Run(name+" mended", func(t *testing.T) { c.in(t).mend(name) })
	}
	require.Equal(t, server, c.Server.PID())
	require.True(t, c.Server.Running(), "it crashed")
	c.requireConsistent()
	c.verdict.requireGood(t)
}

// removeBadClaims is the first half of mending them: what a claim asks for is fixed at its creation.
func (c *cluster) removeBadClaims() {
	c.T.Helper()
	c.deleteClaims()
	for name := range badClaims {
		require.Empty(c.T, c.Pod(name).Spec.NodeName, name)
	}
}

// mend makes the claim of a pod a good one, and the pod's annotation name it: then it runs.
func (c *cluster) mend(name string) {
	c.T.Helper()
	bad := badClaims[name]
	started := time.Now()
	require.NoError(c.T, c.tryApply(claimText(name, goodClaim)))
	if bad.annotation != "" {
		c.patchPod(name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.ExtendedResourceClaimsAnnotation, name))
	}
	pod, at := c.AwaitBound(name)
	require.NotEmpty(c.T, given(pod))
	c.T.Logf("bound %s after its claim was mended", at.Sub(started).Round(time.Millisecond))
}

// kubectlReserve runs the plugin against the server and returns what it prints.
func (c *cluster) kubectlReserve(args ...string) string {
	c.T.Helper()
	command := exec.CommandContext(c.T.Context(), testbed.File(c.T, "bin", "kubectl-reserve"), append(args, "--ledger-url="+c.Server.URL)...)
	command.Env = c.environment()
	output, err := command.CombinedOutput()
	require.NoError(c.T, err, "%s", output)
	return string(output)
}

// tryApply creates an object and returns what the API server says.
func (c *cluster) tryApply(content string) error {
	c.T.Helper()
	return c.ControlPlane.Apply(c.T.Context(), []byte(content), namespace)
}

// forgetValidation makes the API server take any spec of a claim, as one does that has another version of
// the definition.
func (c *cluster) forgetValidation() {
	c.T.Helper()
	const patch = `[{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec", "value":
		{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}]`
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	definitions, err := c.Resource(definition, "")
	require.NoError(c.T, err)
	_, err = definitions.Patch(c.T.Context(), "extendedresourceclaims.globalreserve.io", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(c.T, err)
}
