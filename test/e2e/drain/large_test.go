//go:build e2e

package drain

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestPlanOfManyNodes plans for 50 of 500 nodes, each with 20 pods.
func TestPlanOfManyNodes(t *testing.T) {
	const nodes, drained, perNode, most = 500, 50, 20, 2 * time.Second
	c := testbed.NewCluster(t, plain.StartT(t))
	c.StartServer(clusterload.ServerOptions{})
	names := c.AddNodes(nodes, controlplane.NodeTemplate{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi"),
	}})
	var pods []*corev1.Pod
	for i := range nodes * perNode {
		pod := testbed.NewPod(fmt.Sprintf("web-%d", i), scheduler, "1")
		pod.Namespace, pod.Spec.NodeName = c.Namespace, names[i%nodes]
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "StatefulSet", Name: fmt.Sprintf("web-%d", i%200), UID: "u", Controller: ptr.To(true),
		}}
		pods = append(pods, pod)
	}
	require.NoError(t, clusterload.CreatePods(t.Context(), c.Client(), pods))
	c.Eventually(func(t *assert.CollectT) {
		var all reserver.AllocationsAnswer
		require.NoError(t, c.Ledger.Get(c.T.Context(), "/v1/allocations?limit=1&namespace="+c.Namespace+"&pod="+
			pods[len(pods)-1].Name, &all))
		assert.NotEmpty(t, all.Allocations)
	})
	c.CatchUp()
	var revision reserver.RevisionAnswer
	require.NoError(t, c.Ledger.Get(t.Context(), "/v1/revision", &revision))
	var plan reserver.DrainPlanAnswer
	began := time.Now()
	require.NoError(t, c.Ledger.Post(t.Context(), "/v1/drain/plan",
		&reserver.DrainPlanRequest{Nodes: names[:drained]}, &plan))
	took := time.Since(began)
	t.Logf("planned in %v", took)
	assert.Less(t, took, most)
	assert.Equal(t, revision.Revision, plan.Revision)
	assert.Zero(t, plan.Unplaced)
	require.Len(t, plan.Pods, drained*perNode)
	used := map[string]int{}
	for _, pod := range plan.Pods {
		used[pod.To]++
	}
	for node, n := range used {
		assert.NotContains(t, names[:drained], node)
		assert.LessOrEqual(t, n, 32-perNode, node)
	}
}
