//go:build e2e

package devices

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A claim in use is deleted, and made anew for another resource, while no server is there: the server that comes gives
// the device in use to nobody else.
func TestClaimMadeAnewWhileNoServerIsThere(t *testing.T) {
	c := newCluster(t, setup{nodes: 1})
	c.startScheduler(scheduler)
	c.CreateDevice("one", "node-0", "anew")
	c.CreateDeviceClaim("anew", "anew", 1)
	c.CreateDeviceClaim("next", "anew", 1)
	require.Equal(t, "GPU-one", given(c.run("has", "anew")))

	c.Server.KillAlone(t)
	c.deleteClaim("anew")
	_, err := c.DeviceClaims().Patch(t.Context(), "anew", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	c.Eventually(func(t *assert.CollectT) {
		_, err := c.DeviceClaims().Get(c.T.Context(), "anew", metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err))
	})
	claim := testbed.NewDeviceClaim("anew", "", 1)
	claim.Spec.ResourceName = "example.com/other"
	_, err = c.DeviceClaims().Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.Server.Start(t.Context()))

	c.awaitClaim("anew", v1alpha1.ExtendedResourceClaimBound)
	c.awaitDevice("one", v1alpha1.ExtendedResourceBound)
	pod := c.create("wants", "nobody", "next")
	c.CatchUp()
	require.NotEmpty(t, c.Filter(pod, "node-0"))
}
