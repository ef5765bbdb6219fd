//go:build e2e

package devices

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// TestClaimsTakenOffUnderABind takes the claims off a pod that was given a device, while its Binding is on the way to
// the API server: once it is bound, nobody would know of its device.
func TestClaimsTakenOffUnderABind(t *testing.T) {
	c := newCluster(t, setup{nodes: 1, proxied: true})
	c.CreateDevice("gpu", "node-0", "A100")
	c.awaitDevice("gpu", v1alpha1.ExtendedResourceAvailable)
	pod, other := c.claimant("first", "A100"), c.claimant("second", "A100")
	refusal := c.BindHeld(pod, "node-0", func() {
		c.patchPod("first", `{"metadata":{"annotations":{"`+v1alpha1.ExtendedResourceClaimsAnnotation+`":null}}}`)
	})
	assert.Contains(t, refusal, "it has changed")
	require.Empty(t, c.Bind(other, "node-0"))
	require.Empty(t, c.Bind(pod, "node-0"), "it asks for no device now")
	assert.NotEmpty(t, given(c.Pod("second")))
	assert.Empty(t, given(c.Pod("first")), "the device is given twice")
	c.requireConsistent()
	c.verdict.requireGood(t)
}
