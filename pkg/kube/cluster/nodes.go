package cluster

import "github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"

// Nodes are the nodes of a cluster in compact form, as far as the watch has brought them: what nodes are chosen by, and
// what the ledger records of them. Make one with NewNodes. Lookups are safe for concurrent use. Only the Cache writes,
// with Cache.apply held, so that the ledger has the change, too.
type Nodes struct{ byName shard[string, Node] }

// NewNodes returns an empty store.
func NewNodes() *Nodes { return &Nodes{shard[string, Node]{kept: map[string]*Node{}}} }

// Put stores a state of a node, in the place of the one that had its name.
func (s *Nodes) Put(node *Node) { s.byName.set(node.Name, node) }

// Remove removes the node of a name.
func (s *Nodes) Remove(name string) { s.byName.remove(name) }

// Node returns the node of a name; ok is false where there is none. The result is shared and must not be changed.
func (s *Nodes) Node(name string) (node *Node, ok bool) {
	node = s.byName.get(name)
	return node, node != nil
}

// allNodes returns every node, in no order.
func (s *Nodes) allNodes() []*Node { return s.byName.appendAll(nil) }

// KeepingNodes returns the nodes that say that they keep capacity, in no order.
func (s *Nodes) KeepingNodes() []*Node {
	var list []*Node
	for _, node := range s.allNodes() {
		if _, keeps := node.Annotations[v1alpha1.KeepsCapacityAnnotation]; keeps {
			list = append(list, node)
		}
	}
	return list
}
