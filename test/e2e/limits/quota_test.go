//go:build e2e

package limits

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestQuotaRefusesAfterUs: ResourceQuota, which counts pods without a node as well, refuses pods that are created with
// a node after the server has allowed them. The first has its capacity for as long as it might be created. The others
// have to wait for it: one node of four is the share of a namespace. Others' pods are bound, a system-cluster-critical
// one among them.
func TestQuotaRefusesAfterUs(t *testing.T) {
	outer := newCluster(t, 4)
	startQuotaController(outer)
	inner := outer.In(t, "tenant")
	c := &inner
	limit(c, "10")
	try := func(name, node, cpu string) error {
		pod := testbed.NewPod(name, testbed.Nobody, cpu, func(p *corev1.Pod) { p.Spec.NodeName = node })
		pod.Namespace = c.Namespace
		_, err := c.Client().CoreV1().Pods(c.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}
	require.NoError(t, try("waits", "", "9500m"))
	require.ErrorContains(t, try("first", "node-0", "1"), "exceeded quota")
	for i := range 24 {
		err := try(fmt.Sprintf("placed-%d", i), fmt.Sprintf("node-%d", i%4), "1")
		require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	}
	used := func() (milli int64) {
		for _, allocation := range c.Allocations().Allocations {
			if allocation.Namespace == c.Namespace {
				milli += allocation.Requests["cpu"]
			}
		}
		return milli
	}
	assert.EqualValues(t, 1000, used())
	others, critical := outer.In(t, "others"), outer.In(t, "critical")
	require.Empty(t, others.Bind(others.CreatePod("ordinary", testbed.Nobody, "1"), "node-3"))
	require.Empty(t, critical.Bind(critical.CreatePod("urgent", testbed.Nobody, "2", func(p *corev1.Pod) {
		p.Spec.PriorityClassName = "system-cluster-critical"
	}), "node-2"), "what the tenant leaves is there for it")
	c.Eventually(func(t *assert.CollectT) { assert.Zero(t, used()) })
	outer.RequireNeverOvercommitted()
}

// startQuotaController starts the controller that counts what quotas are used for: the API server's own admission goes
// by that.
func startQuotaController(c *testbed.Cluster) {
	c.T.Helper()
	kubeconfig, err := c.AdminKubeconfig()
	require.NoError(c.T, err)
	_, err = c.StartProcess(c.T.Context(), controlplane.ProcessOptions{
		Name: "quota-controller", Path: filepath.Join(c.BinDir(), controlplane.ControllerManager), Args: []string{
			"--kubeconfig=" + kubeconfig, "--controllers=resourcequota-controller", "--leader-elect=false", "--secure-port=0",
			"--kube-api-qps=200", "--kube-api-burst=400",
		},
	})
	require.NoError(c.T, err)
}

// limit gives a namespace a ResourceQuota, and returns when the API server and the ledger keep to it.
func limit(c *testbed.Cluster, cpu string) {
	c.T.Helper()
	_, err := c.Client().CoreV1().ResourceQuotas(c.Namespace).Create(c.T.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "quota"},
		Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{"requests.cpu": testbed.Requests(cpu)[corev1.ResourceCPU]},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	// more than any quota here: that is known once it is refused for it
	probe := testbed.NewPod("probe", testbed.Nobody, "1000")
	probe.Namespace, probe.UID = c.Namespace, "probe"
	c.Eventually(func(t *assert.CollectT) {
		quota, err := c.Client().CoreV1().ResourceQuotas(c.Namespace).Get(c.T.Context(), "quota", metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.NotEmpty(t, quota.Status.Used)
		}
		_, err = c.Ledger.Filter(c.T.Context(), probe, "node-0")
		assert.ErrorContains(t, err, "ResourceQuota")
	})
}
