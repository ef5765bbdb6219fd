//go:build e2e || soak

package limits

import (
	"context"
	"path/filepath"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// startQuotaController starts the controller that counts what quotas are used for: the API server's own admission goes by that.
func startQuotaController(c *testbed.Cluster) {
	c.T.Helper()
	kubeconfig, err := c.AdminKubeconfig()
	require.NoError(c.T, err)
	_, err = c.StartProcess(c.T.Context(), controlplane.ProcessOptions{
		Name: "quota-controller", Path: filepath.Join(c.BinDir(), controlplane.ControllerManager), Args: []string{
			"--kubeconfig=" + kubeconfig, "--controllers=resourcequota-controller", "--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400",
		},
	})
	require.NoError(c.T, err)
}

// limit gives a namespace a ResourceQuota, and returns when the API server and the ledger keep to it.
func limit(c *testbed.Cluster, cpu string) {
	c.T.Helper()
	_, err := c.Client().CoreV1().ResourceQuotas(c.Namespace).Create(c.T.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "quota"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": testbed.Requests(cpu)[corev1.ResourceCPU]}},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	probe := testbed.NewPod("probe", testbed.Nobody, "1000") // more than any quota here: that is known once it is refused for it
	probe.Namespace, probe.UID = c.Namespace, "probe"
	c.Eventually(func(t *assert.CollectT) {
		quota, err := c.Client().CoreV1().ResourceQuotas(c.Namespace).Get(c.T.Context(), "quota", metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.NotEmpty(t, quota.Status.Used)
		}
		for _, why := range c.Filter(probe, "node-0") {
			assert.Contains(t, why, "ResourceQuota")
		}
		assert.NotEmpty(t, c.Filter(probe, "node-0"))
	})
}

// used is what the pods and slots of a namespace use together, in milli-CPU; ok is false where the account changed
// between the two looks.
func used(ctx context.Context, c *testbed.Cluster, namespace string) (milli int64, ok bool, err error) {
	pods, err := c.Ledger.Allocations(ctx)
	if err != nil {
		return 0, false, err
	}
	slots, err := c.Ledger.Reservations(ctx)
	if err != nil || slots.Revision != pods.Revision {
		return 0, false, err
	}
	for i := range pods.Allocations {
		if a := &pods.Allocations[i]; a.Namespace == namespace {
			milli += a.Requests["cpu"]
		}
	}
	for i := range slots.Reservations {
		r := &slots.Reservations[i]
		for k := range r.Slots {
			if r.Namespace == namespace {
				milli += r.Slots[k].Free["cpu"]
			}
		}
	}
	return milli, true, nil
}
