package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

func TestNodesTellLabelsAndTaints(t *testing.T) {
	c := newCache()
	changes := 0
	c.options.OnNodesChanged = func() { changes++ }
	nodes := c.nodeSink()
	node := func(version, zone string, taints ...v1.Taint) *v1.Node {
		return &v1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: "n", UID: "u", ResourceVersion: version,
				Labels: map[string]string{"zone": zone},
			},
			Spec: v1.NodeSpec{Taints: taints},
		}
	}
	taint := v1.Taint{Key: "gpu", Effect: v1.TaintEffectNoSchedule}
	steps := []struct {
		node  *v1.Node
		calls int
	}{
		{node("1", "a"), 1},
		{node("2", "a"), 1},
		{node("3", "b"), 2},
		{node("4", "b", taint), 3},
		{node("5", "b", taint), 3},
	}
	for _, step := range steps {
		require.NoError(t, nodes.Update(step.node))
		assert.Equal(t, step.calls, changes, step.node.ResourceVersion)
	}
	got, ok := c.Node("n")
	require.True(t, ok)
	want := &Node{
		Name: "n", UID: "u", Labels: map[string]string{"zone": "b"}, Taints: []v1.Taint{taint},
		allocatable: []resources.Amount{}, version: 5,
	}
	assert.Equal(t, want, got)
	view, _, _ := c.ledger.Node("n")
	assert.Equal(t, want.Labels, view.Labels, "which the ledger tells to readers")
	_, ok = c.Node("other")
	assert.False(t, ok)
}
