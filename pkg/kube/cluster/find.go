package cluster

import (
	"context"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// cacheLook is one walk over the ledger next to the cache. It takes the ledger node by node, so that no lock is held
// for longer than one node takes; what changes meanwhile shows up as a suspicion that does not last.
type cacheLook struct {
	*Comparer
	found       map[suspicion]source
	onNode      map[string][]*Pod // the cache's bound pods
	visited     map[string]struct{}
	nodes       int                     // nodes that exist in the ledger, of those visited
	allocations int                     // allocations on the nodes visited
	onOne       []ledger.AllocationView // those on the node visited last; its memory is used again
	// allocated collects the allocations whose pods the API server must know; nil where they are not wanted.
	allocated map[ledger.PodRef]struct{}
}

// findInCache adds what differs between the ledger and the cache. With collect
// it returns the pods whose allocations are Binding or Bound.
func (c *Comparer) findInCache(found map[suspicion]source, collect bool) map[ledger.PodRef]struct{} {
	nodes := c.cache.allNodes()
	l := cacheLook{
		Comparer: c, found: found,
		onNode:  make(map[string][]*Pod, len(nodes)),
		visited: make(map[string]struct{}, len(nodes)),
	}
	if collect {
		l.allocated = map[ledger.PodRef]struct{}{}
	}
	for _, r := range c.cache.allPods() {
		if r.Bound() {
			l.onNode[r.Node] = append(l.onNode[r.Node], r)
		}
	}
	for _, n := range nodes {
		l.visit(n.Name)
	}
	for name := range l.onNode {
		l.visit(name)
	}
	// Asking the ledger for all of its nodes takes long under its lock, so that
	// is done only if the counts say that it has some more.
	if stats := c.ledger.Stats(); stats.Nodes > l.nodes || total(stats.Allocations[:]) > l.allocations {
		views, _ := c.ledger.Nodes()
		for i := range views {
			l.visit(views[i].Name)
		}
	}
	return l.allocated
}

func total(counts []int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// visit compares one node and what is on it.
func (l *cacheLook) visit(name string) {
	if _, done := l.visited[name]; done {
		return
	}
	l.visited[name] = struct{}{}
	view, allocations, _ := l.ledger.AppendNodeAllocations(l.onOne[:0], name)
	l.onOne = allocations
	if kind := diagnoseNode(observed(l.ledger.Table(), &view), l.cache.byName.get(name).observation()); kind != "" {
		l.found[suspicion{kind: kind, node: name}] = inCache
	}
	if view.Exists {
		l.nodes++
	}
	l.allocations += len(allocations)
	agreed := 0
	for i := range allocations {
		if l.compareAllocation(&allocations[i]) {
			agreed++
		}
	}
	if agreed == len(l.onNode[name]) {
		return
	}
	for _, r := range l.onNode[name] {
		l.compare(allocationOf(l.ledger.Reader, r.Ref), r, r.Ref)
	}
}

// compareAllocation compares an allocation with its pod in the cache and reports whether
// that is bound to the allocation's node.
func (l *cacheLook) compareAllocation(allocation *ledger.AllocationView) bool {
	if l.allocated != nil && allocation.Pod.UID != "" {
		l.allocated[allocation.Pod] = struct{}{}
	}
	pod := l.cache.podOf(allocation.Pod)
	l.compare(allocation, pod, allocation.Pod)
	return pod.Bound() && pod.Node == allocation.Node
}

func (l *cacheLook) compare(allocation *ledger.AllocationView, pod *Pod, ref ledger.PodRef) {
	if pod != nil {
		ref = pod.Ref
	}
	if kind := diagnosePod(l.cache.ledger.Table(), allocation, pod); kind != "" {
		l.found[suspicion{kind: kind, pod: ref, live: needsLive(kind, pod)}] = inCache
	}
}

// podOf returns the cache's pod of a reference: nil where the name is another pod's by now.
func (c *Cache) podOf(ref ledger.PodRef) *Pod {
	r := c.find(podKey{ref.Namespace, ref.Name})
	if r == nil || (ref.UID != "" && r.Ref.UID != ref.UID) {
		return nil
	}
	return r
}

// findLive adds what differs between the ledger and consistent lists from the
// API server. allocated are the pods that must be in the list.
func (c *Comparer) findLive(ctx context.Context, found map[suspicion]source,
	allocated map[ledger.PodRef]struct{},
) error {
	look := liveLook{
		Reader: c.ledger.Reader, client: c.client, allocated: allocated, listed: func(*Pod) {},
		differs: func(d Difference) { addListed(found, d) },
	}
	return look.run(ctx)
}

// addListed adds a suspicion that a live list raised, unless the cache raises it too.
func addListed(found map[suspicion]source, d Difference) {
	s := suspicion{kind: d.Kind, pod: d.Pod, live: true}
	if d.Pod == (ledger.PodRef{}) {
		s.node = d.Node
	}
	if _, ok := found[s]; !ok {
		found[s] = inList
	}
}
