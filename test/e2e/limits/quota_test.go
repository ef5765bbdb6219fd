//go:build e2e

package limits

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestQuotaRefusesAfterUs: ResourceQuota, which counts pods without a node as well, refuses pods that are created with a node
// after the server has allowed them. For as long as they might be created these have no more than the namespace may have, others'
// pods are bound, a system-cluster-critical one among them, and then nothing is left of them.
func TestQuotaRefusesAfterUs(t *testing.T) {
	outer, url := newCluster(t, 4)
	startQuotaController(outer)
	inner := outer.In(t, "tenant")
	c := &inner
	limit(c, "10")
	author := newTenant(c, url)
	try := func(name, node, cpu string) error {
		pod := testbed.NewPod(name, testbed.Nobody, cpu, func(p *corev1.Pod) { p.Spec.NodeName = node })
		pod.Namespace = c.Namespace
		_, err := author.pods.Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}
	require.NoError(t, try("waits", "", "9500m"))
	byQuota, byLedger := 0, 0
	for i := range 24 {
		err := try(fmt.Sprintf("placed-%d", i), fmt.Sprintf("node-%d", i%4), "1")
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		if strings.Contains(err.Error(), "exceeded quota") {
			byQuota++
		} else {
			require.ErrorContains(t, err, "more cpu than its ResourceQuota")
			byLedger++
		}
	}
	assert.Equal(t, 10, byQuota, "as many as the namespace may have")
	assert.Equal(t, 14, byLedger)
	milli, ok, err := used(t.Context(), c, c.Namespace)
	require.NoError(t, err)
	require.True(t, ok)
	assert.EqualValues(t, 10_000, milli)
	others, critical := outer.In(t, "others"), outer.In(t, "critical")
	require.Empty(t, others.Bind(others.CreatePod("ordinary", testbed.Nobody, "1"), "node-3"))
	require.Empty(t, critical.Bind(critical.CreatePod("urgent", testbed.Nobody, "2", func(p *corev1.Pod) {
		p.Spec.PriorityClassName = "system-cluster-critical"
	}), "node-2"), "what the tenant leaves is there for it")
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		milli, ok, err := used(c.T.Context(), c, c.Namespace)
		assert.NoError(t, err)
		assert.True(t, ok)
		assert.Zero(t, milli)
	}, 2*testbed.Soon, testbed.Poll)
	outer.RequireNeverOvercommitted()
}
