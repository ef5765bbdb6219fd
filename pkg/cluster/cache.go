package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Cache holds the cluster's pods and nodes in compact form and reports every
// change to the ledger. Make one with New.
type Cache struct {
	ledger  ledger.Observer
	reader  Reader
	options Options
	log     logrus.FieldLogger

	podWatch, nodeWatch watched

	// apply is held while one object's change goes to the stores and to the
	// ledger. Under it the change is in both or in neither.
	apply sync.Mutex
	*Pods
	nodes shard[string, nodeRecord]

	synced     chan struct{} // closed once both kinds are
	syncedOnce sync.Once
}

// New makes a Cache that will keep l in step with the cluster behind client. It
// starts nothing.
func New(client kubernetes.Interface, l ledger.Observer, o Options) *Cache {
	c := &Cache{
		ledger: l, reader: Reader{Table: l.Table(), Gangs: o.Gangs}, options: o, log: o.Logger,
		Pods: NewPods(), nodes: shard[string, nodeRecord]{kept: map[string]*nodeRecord{}}, synced: make(chan struct{}),
	}
	c.podWatch.follow("pods", c.podSource(client), &c.reached)
	c.nodeWatch.follow("nodes", c.nodeSource(client), &reached{})
	return c
}

// Reader reads pods as the Cache does.
func (c *Cache) Reader() Reader { return c.reader }

// Run lists and watches until ctx ends; nothing reaches the ledger after that. See
// WaitForSync. Nodes come first: pods may name resources that no node offers, and only so many of those are counted. So
// it has to be known before what the nodes offer.
func (c *Cache) Run(ctx context.Context) error {
	nodes, listed := c.nodeSink(), make(chan struct{})
	replace, listedOnce := nodes.replace, sync.OnceFunc(func() { close(listed) })
	nodes.replace = func(all []*nodeRecord, version uint64) {
		replace(all, version)
		listedOnce()
	}
	var running sync.WaitGroup
	running.Go(func() { c.nodeWatch.run(ctx, &v1.Node{}, nodes) })
	running.Go(func() {
		select {
		case <-listed:
			c.podWatch.run(ctx, &v1.Pod{}, c.podSink())
		case <-ctx.Done():
		}
	})
	running.Wait()
	return nil
}

// Synced reports whether all pods and nodes that existed at the start have
// reached the ledger.
func (c *Cache) Synced() bool { return c.podWatch.synced.Load() && c.nodeWatch.synced.Load() }

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

// replaced records that a full state of one kind is in: the first one, or one after a gap, whose changes are those
// after a revision.
func (c *Cache) replaced(kind *watched, objects int, since uint64) {
	kind.pulse.Heard()
	kind.objects.Store(int64(objects))
	if kind.synced.Swap(true) {
		c.options.OnCatchUp(since)
	}
	if c.Synced() {
		c.syncedOnce.Do(func() { close(c.synced) })
	}
}

// Node is what is kept of a node beside its account in the ledger: what nodes are chosen
// by. It is shared and must not be changed.
type Node struct {
	Name   string
	UID    types.UID
	Labels map[string]string
	Taints []v1.Taint
	// Annotations are those that have to do with autoscalers; nil where there are none.
	Annotations map[string]string
}

// Node returns the node of a name; ok is false where there is none.
func (c *Cache) Node(name string) (node Node, ok bool) {
	r := c.nodes.get(name)
	if r == nil {
		return Node{}, false
	}
	return r.node(), true
}

func (r *nodeRecord) node() Node {
	return Node{Name: r.Name, UID: r.UID, Labels: r.Labels, Taints: r.taints, Annotations: r.annotations}
}

// KeepingNodes returns the nodes that say that they keep capacity, in no order.
func (c *Cache) KeepingNodes() []Node {
	var list []Node
	for _, r := range c.nodes.appendAll(nil) {
		if _, keeps := r.annotations[v1alpha1.KeepsCapacityAnnotation]; keeps {
			list = append(list, r.node())
		}
	}
	return list
}

// sameAnnotations reports whether two states of a node have the same labels and taints.
func sameAnnotations(a, b *nodeRecord) bool {
	return maps.Equal(a.Labels, b.Labels) && slices.EqualFunc(a.taints, b.taints, func(x, y v1.Taint) bool {
		return x.Key == y.Key && x.Value == y.Value && x.Effect == y.Effect
	})
}
