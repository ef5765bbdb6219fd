package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Cache holds the cluster's pods and nodes in compact form and reports every change to the ledger. Make one with New.
type Cache struct {
	ledger  ledger.Observer
	reader  Reader
	options Options
	log     logrus.FieldLogger

	podWatch, nodeWatch watched
	gaps                chan struct{} // a full state came after a gap in a watch

	// apply is held while one object's change goes to the stores and to the
	// ledger. Under it the change is in both or in neither.
	apply sync.Mutex
	dra   draOffers
	*Pods
	*Nodes
}

// New makes a Cache that will keep l in step with the cluster behind client. It starts nothing.
func New(client kubernetes.Interface, l ledger.Observer, o Options) *Cache {
	c := &Cache{
		ledger: l, reader: Reader{Table: l.Table(), Gangs: o.Gangs}, options: o, log: o.Logger,
		Pods: NewPods(), Nodes: NewNodes(), dra: newDRAOffers(), gaps: make(chan struct{}, 1),
	}
	c.podWatch.follow("pods", c.podSource(client), &c.reached)
	c.nodeWatch.follow("nodes", c.nodeSource(client), &reached{})
	return c
}

// Reader reads pods as the Cache does.
func (c *Cache) Reader() Reader { return c.reader }

// Run lists and watches until ctx ends; nothing reaches the ledger after that. See
// WaitForSync. Nodes come first, because it has to be known what they offer: pods may name resources that no node
// offers, and only so many of those are counted.
func (c *Cache) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { c.nodeWatch.run(ctx, &v1.Node{}, c.nodeSink()) })
	running.Go(func() {
		if c.nodeWatch.synced.Wait(ctx) == nil {
			c.podWatch.run(ctx, &v1.Pod{}, c.podSink())
		}
	})
	running.Wait()
	return nil
}

// Synced reports whether all pods and nodes that existed at the start have reached the ledger.
func (c *Cache) Synced() bool { return c.podWatch.synced.IsOpen() && c.nodeWatch.synced.IsOpen() }

// WaitForSync returns nil once Synced is true, or the error of ctx if that ends first.
func (c *Cache) WaitForSync(ctx context.Context) error {
	if err := c.nodeWatch.synced.Wait(ctx); err != nil {
		return err
	}
	return c.podWatch.synced.Wait(ctx)
}

// replaced records that a full state of one kind is in: the first one, or one after a gap. Its changes are those after
// revision since.
func (c *Cache) replaced(kind *watched, objects int, since uint64) {
	kind.pulse.Heard()
	kind.objects.Store(int64(objects))
	if kind.synced.IsOpen() {
		c.options.OnCatchUp(since)
		informer.Poke(c.gaps)
	}
	kind.synced.Open()
}

// sameAnnotations reports whether two states of a node have the same labels and taints.
func sameAnnotations(a, b *Node) bool {
	return maps.Equal(a.Labels, b.Labels) && slices.EqualFunc(a.Taints, b.Taints, func(x, y v1.Taint) bool {
		return x.Key == y.Key && x.Value == y.Value && x.Effect == y.Effect
	})
}
