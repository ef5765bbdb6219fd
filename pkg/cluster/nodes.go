package cluster

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node is what is kept of a node beside its account in the ledger: by this,
// whoever chooses nodes tells them apart. It is shared and must not be changed.
type Node struct {
	Name   string
	UID    types.UID
	Labels map[string]string
	Taints []v1.Taint
}

// Node returns the node of a name; ok is false where there is none.
func (c *Cache) Node(name string) (node Node, ok bool) {
	r := c.nodes.get(name)
	if r == nil {
		return Node{}, false
	}
	return r.node(), true
}

// Nodes returns all nodes, in no order.
func (c *Cache) Nodes() []Node {
	records := c.nodes.all()
	nodes := make([]Node, len(records))
	for i, r := range records {
		nodes[i] = r.node()
	}
	return nodes
}

// NotifyNodes has changed called after labels or taints of a node changed, which
// the ledger knows nothing of, and for new nodes. It must be quick, must not use
// the Cache, and must be set before Start.
func (c *Cache) NotifyNodes(changed func()) { c.nodesChanged = changed }

func (r *nodeRecord) node() Node {
	return Node{Name: r.Name, UID: r.UID, Labels: r.labels, Taints: r.taints}
}

// sameMarks reports whether two states of a node have the same labels and taints.
func sameMarks(a, b *nodeRecord) bool {
	return maps.Equal(a.labels, b.labels) && slices.EqualFunc(a.taints, b.taints, func(x, y v1.Taint) bool {
		return x.Key == y.Key && x.Value == y.Value && x.Effect == y.Effect
	})
}
