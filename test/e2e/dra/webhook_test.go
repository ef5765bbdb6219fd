//go:build e2e || soak

package dra

import (
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/test/clusterload"
)

// startWebhook starts a server, and has the API server ask it. It returns when that does.
func (c *cluster) startWebhook() *clusterload.Webhook {
	c.T.Helper()
	webhook, err := clusterload.NewWebhook(c.ControlPlane)
	require.NoError(c.T, err)
	c.StartServer(clusterload.ServerOptions{Args: slices.Concat(webhook.Args, []string{"--log-level=info"})})
	configuration, err := webhook.Validating("resourceclaims.yaml")
	require.NoError(c.T, err)
	_, err = c.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().
		Create(c.T.Context(), configuration, metav1.CreateOptions{})
	require.NoError(c.T, err)
	c.awaitAsked()
	return webhook
}

// awaitAsked waits until the API server asks: a share of a device that no slice has is refused by nobody else.
func (c *cluster) awaitAsked() {
	c.T.Helper()
	const name = "probe"
	c.createClaims(name)
	c.Eventually(func(t *assert.CollectT) {
		err := c.allocate(name, true, result("no-node", "no-device", func(r *resourcev1.DeviceRequestAllocationResult) {
			r.ShareID = ptr.To(types.UID("9b1c3c2e-3b0b-4d7e-8a53-0c6b1f0d7c11"))
		}))
		assert.ErrorContains(t, err, "is not given its devices")
	})
	require.NoError(c.T, c.release(c.T.Context(), name))
}

// result is a device of a node.
func result(node, name string,
	changes ...func(*resourcev1.DeviceRequestAllocationResult),
) resourcev1.DeviceRequestAllocationResult {
	r := resourcev1.DeviceRequestAllocationResult{Request: "gpu", Driver: driver, Pool: node, Device: name}
	for _, change := range changes {
		change(&r)
	}
	return r
}

// allocate gives a claim devices as a scheduler does that looks at nothing else.
func (c *cluster) allocate(name string, dry bool, results ...resourcev1.DeviceRequestAllocationResult) error {
	claim, err := c.claimClient().Get(c.T.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: results}}
	options := metav1.UpdateOptions{}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = c.claimClient().UpdateStatus(c.T.Context(), claim, options)
	return err
}
