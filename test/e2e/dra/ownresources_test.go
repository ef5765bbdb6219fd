//go:build e2e

package dra

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestClaimsOfCPU races pods whose claims take 3 of a node's 4 CPUs, by the gate DRANodeAllocatableResources, with pods
// that ask for 3 CPUs themselves: each node has place for one of either. These are bound faster, so they are fewer.
func TestClaimsOfCPU(t *testing.T) {
	const nodes = 12
	cp := controlplane.StartT(t, controlplane.Options{FeatureGates: map[string]bool{"DRANodeAllocatableResources": true}})
	require.NoError(t, crd.Prepare(t.Context(), cp))
	c := clusterOn(t, cp)
	for _, node := range c.AddNodes(nodes, controlplane.NodeTemplate{}) {
		c.publishCores(node)
	}
	c.StartServer(clusterload.ServerOptions{})
	c.StartKubeScheduler("default-scheduler", "default-scheduler.yaml")
	c.StartKubeScheduler("second-scheduler", "second-scheduler.yaml")
	for round := range *rounds {
		pods := testbed.NewPods(nodes/2, fmt.Sprintf("asks-%d", round), "second-scheduler", "3")
		for i := range nodes {
			name := fmt.Sprintf("claims-%d-%d", round, i)
			c.createClaims(name)
			pods = append(pods, newPod(name, "default-scheduler", name))
		}
		c.Create(pods...)
		on := map[string]int{}
		c.Eventually(func(t *assert.CollectT) {
			clear(on)
			for _, pod := range testbed.Bound(c.Pods()) {
				on[pod.Spec.NodeName]++
			}
			assert.Len(t, on, nodes)
		})
		for node, count := range on {
			require.Equal(t, 1, count, node)
		}
		c.Eventually(func(t *assert.CollectT) {
			answer, err := c.Ledger.Nodes(c.T.Context())
			assert.NoError(t, err)
			for i := range answer.Nodes {
				assert.Contains(t, []int64{3000, 3100}, answer.Nodes[i].Resources["cpu"].Bound, answer.Nodes[i].Name)
			}
		})
		c.clear()
	}
}

// publishCores publishes a device of a node that takes 3 of its CPUs. The node's kubelet has the feature.
func (c *cluster) publishCores(node string) {
	c.T.Helper()
	_, err := c.Client().CoreV1().Nodes().Patch(c.T.Context(), node, types.MergePatchType,
		[]byte(`{"status":{"declaredFeatures":["DRANodeAllocatableResources"]}}`), metav1.PatchOptions{}, "status")
	require.NoError(c.T, err)
	slice := newSlice(node, 1)
	slice.Spec.Devices[0].NodeAllocatableResources = map[corev1.ResourceName]resourcev1.NodeAllocatableResource{
		corev1.ResourceCPU: {Mapping: &resourcev1.NodeAllocatableMapping{DeviceMultiplier: ptr.To(resource.MustParse("3"))}},
	}
	c.Eventually(func(t *assert.CollectT) { // the API server's own cache of nodes may be late
		_, err = c.Client().ResourceV1().ResourceSlices().Create(c.T.Context(), slice, metav1.CreateOptions{})
		assert.NoError(t, err)
	})
}
