//go:build e2e

package devices

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestWaysIn takes devices by the ways into the ledger. That they do so at once without harm is in test/sim.
func TestWaysIn(t *testing.T) {
	c := newCluster(t, setup{nodes: 3, admission: true})
	t.Run("extender", func(t *testing.T) { byExtender(c.in(t)) })
	t.Run("reserve", func(t *testing.T) { byReserve(c.in(t)) })
	t.Run("admission", func(t *testing.T) { byAdmission(c.in(t)) })
	require.Zero(t, c.Metric("globalreserve_bypassed_binds_total"))
	require.Zero(t, c.Metric("globalreserve_decisions_total", "result", "skipped", "verb", "admission"),
		"the webhook is not asked about bindings of the server's own")
}

// claimant creates a claim of a model and a pod of the same name that names it, which nobody schedules.
func (c *cluster) claimant(name, model string) *corev1.Pod {
	c.T.Helper()
	c.CreateDeviceClaim(name, model, 1)
	c.awaitClaim(name, v1alpha1.ExtendedResourceClaimPending)
	return c.create(name, testbed.Nobody, name)
}

func byExtender(c *cluster) {
	c.CreateDevice("ext", "node-1", "ext")
	c.awaitDevice("ext", v1alpha1.ExtendedResourceAvailable)
	first, second := c.claimant("ext-first", "ext"), c.claimant("ext-second", "ext")
	const insufficient = "GlobalReserve: the free devices of the node do not meet the pod's claims"
	require.Equal(c.T, map[string]string{"node-0": insufficient}, c.Filter(first, "node-0", "node-1"))
	require.Contains(c.T, c.Bind(first, "node-0"), "node-0")
	require.Empty(c.T, given(c.Pod("ext-first")))

	require.Empty(c.T, c.Bind(first, "node-1"))
	require.Equal(c.T, "GPU-ext", given(c.Pod("ext-first")), "written with the binding")
	require.Empty(c.T, c.Bind(first, "node-1"), "a repeat is a success")
	require.Equal(c.T, map[string]string{"node-1": insufficient}, c.Filter(second, "node-1"))
	require.Contains(c.T, c.Bind(second, "node-1"), "ext-second", "the refusal names the claim")
	third := c.create("ext-third", testbed.Nobody, "ext-first")
	require.Equal(c.T, map[string]string{"node-1": "GlobalReserve: another pod has a device claim of the pod"},
		c.Filter(third, "node-1"))
	require.NotEmpty(c.T, c.Bind(third, "node-1"))

	c.Delete("ext-first")
	c.awaitClaim("ext-first", v1alpha1.ExtendedResourceClaimPending)
	require.Empty(c.T, c.Bind(third, "node-1"), "the claim serves the next pod")
}

// byReserve takes a gang's devices durably, over a restart of the server; the gang's scheduler binds by itself, under
// admission.
func byReserve(c *cluster) {
	request := &reserver.Request{SchedulerName: "group", TTLSeconds: 60}
	for i := range 3 {
		name, node := fmt.Sprintf("gang-%d", i), fmt.Sprintf("node-%d", i)
		if i < 2 {
			c.CreateDevice(name, node, "gang")
			c.awaitDevice(name, v1alpha1.ExtendedResourceAvailable)
		}
		request.Pods, request.Nodes = append(request.Pods, c.claimant(name, "gang")), append(request.Nodes, node)
	}
	answer := c.Reserve(request)
	require.NotEmpty(c.T, answer.FailedPods, "the third has no device")
	require.Equal(c.T, "InsufficientDevices", answer.Rejections[0].Reason)
	require.Equal(c.T, namespace+"/gang-2", answer.Rejections[0].DeviceClaim)
	rival := c.claimant("rival", "gang")
	require.Empty(c.T, c.Filter(rival, "node-0"), "nothing was taken for a part of the gang")

	c.CreateDevice("gang-2", "node-2", "gang")
	c.awaitDevice("gang-2", v1alpha1.ExtendedResourceAvailable)
	require.NotEmpty(c.T, c.Reserve(request).Reservation)
	c.Server.Crash(c.T)
	require.Len(c.T, c.Filter(rival, request.Nodes...), 3, "the devices are kept for the gang")
	require.Error(c.T, c.BindDirectly(rival.Name, "node-1"))
	for i, pod := range request.Pods {
		require.NoError(c.T, c.BindDirectly(pod.Name, request.Nodes[i]))
		require.Equal(c.T, "GPU-"+pod.Name, given(c.Pod(pod.Name)))
		c.awaitDevice(pod.Name, v1alpha1.ExtendedResourceBound)
	}
}

func byAdmission(c *cluster) {
	c.CreateDevice("adm", "node-1", "adm")
	c.awaitDevice("adm", v1alpha1.ExtendedResourceAvailable)
	c.claimant("adm-first", "adm")
	c.claimant("adm-second", "adm")
	err := c.BindDirectly("adm-first", "node-0")
	require.True(c.T, apierrors.IsConflict(err), "%v", err)
	require.ErrorContains(c.T, err, "adm-first")
	require.NoError(c.T, c.BindDirectly("adm-first", "node-1"))
	require.Equal(c.T, "GPU-adm", given(c.Pod("adm-first")), "the API server wrote what the webhook gave")
	require.Error(c.T, c.BindDirectly("adm-second", "node-1"))
	c.awaitClaim("adm-first", v1alpha1.ExtendedResourceClaimBound)
	c.Delete("adm-first")
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.BindDirectly("adm-second", "node-1")) })
	require.Equal(c.T, "GPU-adm", given(c.Pod("adm-second")))
}
