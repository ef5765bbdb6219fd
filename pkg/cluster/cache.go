package cluster

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Cache holds the cluster's pods and nodes in compact form and reports every
// change to the ledger. Make one with New.
type Cache struct {
	ledger  *ledger.Ledger
	table   *resources.Table
	options Options
	log     logrus.FieldLogger

	podSrc  cache.ListerWatcher
	nodeSrc cache.ListerWatcher

	// apply is held while one object's change goes to the stores and to the
	// ledger, so that whoever holds it sees both with it or both without.
	apply sync.Mutex
	*Pods
	nodes *nodeStore
	// nodesChanged, if any, is told of changes of labels and taints.
	nodesChanged func()

	podsSynced  atomic.Bool
	nodesSynced atomic.Bool
	synced      chan struct{} // closed once both are
	syncedOnce  sync.Once
}

// New makes a Cache that will keep l in step with the cluster behind client. It
// starts nothing.
func New(client kubernetes.Interface, l *ledger.Ledger, o Options) *Cache {
	c := newCache(l, o)
	c.podSrc, c.nodeSrc = c.podSource(client), c.nodeSource(client)
	return c
}

func newCache(l *ledger.Ledger, o Options) *Cache {
	o = o.withDefaults()
	return &Cache{
		ledger: l, table: l.Table(), options: o, log: o.Logger,
		Pods: NewPods(), nodes: newNodeStore(), synced: make(chan struct{}),
	}
}

// Run lists and watches until ctx ends; nothing reaches the ledger after that. See
// WaitForSync.
func (c *Cache) Run(ctx context.Context) error {
	// Nodes are few and come first in the log; the order matters to nobody else.
	nodes := c.newReflector(ctx, "nodes", c.nodeSrc, &v1.Node{}, nodeSink{c})
	pods := c.newReflector(ctx, "pods", c.podSrc, &v1.Pod{}, podSink{c})
	var running sync.WaitGroup
	running.Go(func() { nodes.RunWithContext(ctx) })
	running.Go(func() { pods.RunWithContext(ctx) })
	running.Wait()
	return nil
}

// Synced reports whether all pods and nodes that existed at the start have
// reached the ledger.
func (c *Cache) Synced() bool { return c.podsSynced.Load() && c.nodesSynced.Load() }

// WaitForSync returns nil once Synced is true, or the error of ctx if that ends
// first.
func (c *Cache) WaitForSync(ctx context.Context) error {
	select {
	case <-c.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// markSynced records that the first full state of one kind is in.
func (c *Cache) markSynced(kind *atomic.Bool) {
	kind.Store(true)
	if c.Synced() {
		c.syncedOnce.Do(func() { close(c.synced) })
	}
}

// Stats counts what the cache holds.
type Stats struct {
	Pods        int // all of them
	Bound       int // with a node, not finished
	Pending     int // without a node, not finished
	Finished    int // phase Succeeded or Failed
	Uncountable int // with a request that cannot be counted
	Nodes       int
}

// Stats returns the counts of this moment.
func (c *Cache) Stats() Stats {
	s := c.stats()
	s.Nodes = c.nodes.len()
	return s
}
