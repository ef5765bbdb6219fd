//go:build e2e

package drain

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestController runs examples/drain: it drains the node with the taint and, the taint taken off, takes that back. A
// node whose pods have no place elsewhere it leaves as it is until they have one.
func TestController(t *testing.T) {
	b := newBench(t, 3, "4")
	b.deploy(app{name: "web", kind: "Deployment", replicas: 8, cpu: "1"})
	log := filepath.Join(b.LogDir(), "drain.log")
	_, err := b.StartProcess(t.Context(), controlplane.ProcessOptions{
		Name: "drain", Path: testbed.Program(t, "drain"), LogFile: log,
		Args:  []string{"--kubeconfig=" + b.kubeconfig, "--globalreserve-url=" + b.Documented(), "--every=1s"},
		Ready: clusterload.LogSays(log, "draining nodes"),
	})
	require.NoError(t, err)
	first, second := b.nodes[0], b.nodes[1]
	b.taint(first, true)
	b.awaitDrained(first)
	b.awaitPods("web", 8)

	b.taint(second, true)
	b.Eventually(func(c *assert.CollectT) {
		assert.NoError(c, clusterload.LogSays(log, "there is no place for 4 pods")(t.Context()))
	})
	assert.False(t, b.cordoned(second))
	assert.Equal(t, 4, b.on(second, "web"))
	b.taint(first, false)
	b.awaitDrained(second)
	assert.False(t, b.cordoned(first))
	b.awaitPods("web", 8)
	b.RequireNeverOvercommitted()
}

// awaitDrained waits until a node has no pods of web, and nothing is kept.
func (b *bench) awaitDrained(node string) {
	b.T.Helper()
	b.Eventually(func(t *assert.CollectT) {
		assert.True(t, b.cordoned(node))
		assert.Zero(t, b.on(node, "web"))
		assert.Empty(t, b.ListReservations())
	})
}

// taint puts the taint of the example on a node, or takes it off.
func (b *bench) taint(name string, on bool) {
	b.T.Helper()
	const key = "example.com/drain"
	b.Eventually(func(t *assert.CollectT) { // others write nodes, too
		node, err := b.Client().CoreV1().Nodes().Get(b.T.Context(), name, metav1.GetOptions{})
		require.NoError(b.T, err)
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
		if on {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		_, err = b.Client().CoreV1().Nodes().Update(b.T.Context(), node, metav1.UpdateOptions{})
		assert.NoError(t, err)
	})
}
