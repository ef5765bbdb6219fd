package cluster

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// nodeSink is the store the nodes' reflector writes to.
type nodeSink struct{ *Cache }

var _ cache.TransformingStore = nodeSink{}

// Transformer makes nodes compact before the reflector collects them.
func (s nodeSink) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.record(obj) }
}

func (s nodeSink) record(obj any) (*nodeRecord, error) {
	switch o := obj.(type) {
	case *nodeRecord:
		return o, nil
	case *v1.Node:
		return newNodeRecord(s.table, o), nil
	default:
		return nil, fmt.Errorf("expected a node from the API server, got %T", obj)
	}
}

// Add implements cache.ReflectorStore.
func (s nodeSink) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s nodeSink) Update(obj any) error {
	r, err := s.record(obj)
	if err != nil {
		return err
	}
	s.observeNode(r)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s nodeSink) Delete(obj any) error {
	r, err := s.record(obj)
	if err != nil {
		return err
	}
	s.removeNode(r.Name, r.UID)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s nodeSink) Replace(items []any, _ string) error {
	records := make([]*nodeRecord, 0, len(items))
	present := make(map[string]struct{}, len(items))
	for _, item := range items {
		r, err := s.record(item)
		if err != nil {
			return err
		}
		records = append(records, r)
		present[r.Name] = struct{}{}
	}
	since := s.ledger.Revision()
	for _, held := range s.nodes.all() {
		if _, ok := present[held.Name]; !ok {
			s.removeNode(held.Name, held.UID)
		}
	}
	for _, r := range records {
		s.observeNode(r)
	}
	if s.nodesSynced.Load() {
		s.options.OnCatchUp(since)
	}
	s.markSynced(&s.nodesSynced)
	return nil
}

// Resync implements cache.ReflectorStore. The comparer does what it would be for.
func (nodeSink) Resync() error { return nil }

func (c *Cache) observeNode(r *nodeRecord) {
	c.apply.Lock()
	defer c.apply.Unlock()
	c.applyNode(r)
}

// applyNode takes a state of a node into the store and the ledger, unless it is
// older than what is held. c.apply is held.
func (c *Cache) applyNode(r *nodeRecord) {
	held := c.nodes.get(r.Name)
	if held != nil && older(r.version, held.version) {
		return
	}
	if held != nil && held.UID != r.UID {
		// Deleted and made anew within a gap: who follows the ledger sees both.
		// The use of the pods on it stays.
		c.ledger.RemoveNode(held.Name)
	}
	c.nodes.set(r)
	c.ledger.ObserveNode(r.NodeObservation)
	if c.nodesChanged != nil && (held == nil || !sameMarks(held, r)) {
		c.nodesChanged()
	}
}

// removeNode records that a node was deleted, unless another node has its name
// by now.
func (c *Cache) removeNode(name string, uid types.UID) {
	c.apply.Lock()
	defer c.apply.Unlock()
	if held := c.nodes.get(name); held == nil || held.UID == uid {
		c.applyRemoveNode(name)
	}
}

// applyRemoveNode takes a node out of the store and the ledger. c.apply is held.
func (c *Cache) applyRemoveNode(name string) {
	c.nodes.remove(name)
	c.ledger.RemoveNode(name)
}
