//go:build e2e

package reservations

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// protected is what autoscalers go by, and what says that it is the server's.
var protected = map[string]string{
	v1alpha1.KeepsCapacityAnnotation: "true", v1alpha1.ScaleDownDisabledAnnotation: "true",
	v1alpha1.DoNotDisruptAnnotation: "true",
}

// awaitNode waits until a node has just these annotations of autoscalers.
func (c *cluster) awaitNode(name string, want map[string]string) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		node, err := c.Client().CoreV1().Nodes().Get(c.T.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		got := map[string]string{}
		for key := range protected {
			if value, ok := node.Annotations[key]; ok {
				got[key] = value
			}
		}
		assert.Equal(t, want, got, name)
	})
}

// Nodes that slots are kept on are annotated against being removed, and no longer than that: also where the server was
// killed, and where a person has annotated them.
func TestNodesAreProtectedFromAutoscalers(t *testing.T) {
	c := newCluster(t)
	nodes := c.nodes(4)
	persons := map[string]string{v1alpha1.ScaleDownDisabledAnnotation: "true"}
	c.ChangeNode(nodes[1], func(n *corev1.Node) { n.Annotations = maps.Clone(persons) })
	c.CreateReservation("r", `{ttl: 10m, slots: [
		{name: a, nodeName: `+nodes[0]+`, requests: {cpu: 2}}, {name: b, nodeName: `+nodes[1]+`, requests: {cpu: 2}},
		{name: c, nodeName: `+nodes[2]+`, requests: {cpu: 2}}]}`)
	gang := &reserver.Request{
		SchedulerName: testbed.Nobody, Durable: new(true), TTLSeconds: 600,
		Pods: []*corev1.Pod{c.createPod("p", "1", "")}, Nodes: nodes[3:],
	}
	require.True(t, c.Reserve(gang).Durable)
	for _, node := range nodes {
		c.awaitNode(node, protected)
	}
	c.Eventually(func(t *assert.CollectT) { assert.Equal(t, len(nodes), c.Metric("globalreserve_protected_nodes")) })

	// A person decides otherwise meanwhile.
	c.ChangeNode(nodes[2], func(n *corev1.Node) { n.Annotations[v1alpha1.ScaleDownDisabledAnnotation] = "false" })
	c.Server.KillAlone(t)
	require.NoError(t, c.Reservations().Delete(t.Context(), "r", metav1.DeleteOptions{}))
	require.NoError(t, c.Server.Start(t.Context()))
	c.awaitNode(nodes[0], map[string]string{})
	c.awaitNode(nodes[1], persons)
	c.awaitNode(nodes[2], map[string]string{v1alpha1.ScaleDownDisabledAnnotation: "false"})
	c.awaitNode(nodes[3], protected)
	c.Unreserve(gang)
	c.awaitNode(nodes[3], map[string]string{})
	assert.Zero(t, c.Metric("globalreserve_autoscaling_writes_total", "result", "failed"))
}
