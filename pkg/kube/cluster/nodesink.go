package cluster

import v1 "k8s.io/api/core/v1"

// nodeFollower takes the nodes of the watch into the store and the ledger.
type nodeFollower struct{ *Cache }

// nodeSink is the store the nodes' reflector writes to.
func (c *Cache) nodeSink() sink[v1.Node, Node] { return sink[v1.Node, Node]{nodeFollower{c}} }

func (c nodeFollower) compact(node *v1.Node) *Node { return compactNode(c.reader.Table, node) }

func (c nodeFollower) observe(r *Node) {
	c.observeNode(r)
	c.seen(r.version)
}

func (c nodeFollower) remove(last *Node) {
	c.removeNode(last)
	c.seen(last.version)
}

func (c nodeFollower) seen(version uint64) { c.nodeWatch.record(version) }

func (c nodeFollower) replace(records []*Node, version uint64) {
	since := c.ledger.Revision()
	present := make(map[string]struct{}, len(records))
	for _, r := range records {
		present[r.Name] = struct{}{}
	}
	for _, held := range c.allNodes() {
		if _, ok := present[held.Name]; !ok {
			c.removeNode(held)
		}
	}
	for _, r := range records {
		c.observeNode(r)
	}
	c.seen(version)
	c.replaced(&c.nodeWatch, len(records), since)
}

func (c *Cache) observeNode(r *Node) {
	c.apply.Lock()
	defer c.apply.Unlock()
	c.applyNode(r)
}

// applyNode takes a state of a node into the store and the ledger, unless it is
// older than what is held. c.apply is held.
func (c *Cache) applyNode(r *Node) {
	held := c.byName.get(r.Name)
	if held != nil && older(r.version, held.version) {
		return
	}
	if held != nil && held.UID != r.UID {
		// Deleted and made anew within a gap: followers of the ledger see both. The use of the pods on it stays.
		c.ledger.RemoveNode(held.Name)
	}
	c.Nodes.Put(r)
	c.tellNode(r)
	if held == nil || !sameAnnotations(held, r) {
		c.options.OnNodesChanged()
	}
}

// removeNode records that a node was deleted, unless another node has its name by now.
func (c *Cache) removeNode(last *Node) {
	c.apply.Lock()
	defer c.apply.Unlock()
	if held := c.byName.get(last.Name); held == nil || held.UID == last.UID {
		c.applyRemoveNode(last.Name)
	}
}

// applyRemoveNode takes a node out of the store and the ledger. c.apply is held.
func (c *Cache) applyRemoveNode(name string) {
	c.Nodes.Remove(name)
	c.ledger.RemoveNode(name)
}
