package cluster

import (
	"context"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// The reflectors' back-off. client-go's own (0.8 s to 30 s, doubled by jitter)
// suits controllers that may be late; a ledger that is late refuses room that is
// free, so it comes back to a restarted API server sooner.
const (
	backoffFirst  = 200 * time.Millisecond
	backoffMost   = 5 * time.Second
	backoffFactor = 2.0
	backoffJitter = 0.5
)

// podSource lists and watches all pods. client-go's typed client speaks
// protobuf for pods and nodes unless its rest.Config names a content type.
func (c *Cache) podSource(client kubernetes.Interface) cache.ListerWatcher {
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			page, err := pods.List(ctx, consistent(o))
			if err != nil {
				return nil, err
			}
			return c.compactPods(page), nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.resumed(pods.Watch(ctx, o))
		},
	}, client)
}

// nodeSource lists and watches all nodes.
func (c *Cache) nodeSource(client kubernetes.Interface) cache.ListerWatcher {
	nodes := client.CoreV1().Nodes()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			page, err := nodes.List(ctx, consistent(o))
			if err != nil {
				return nil, err
			}
			return c.compactNodes(page), nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.resumed(nodes.Watch(ctx, o))
		},
	}, client)
}

// resumed tells that what a watch brings first may have happened while there was
// none.
func (c *Cache) resumed(w watch.Interface, err error) (watch.Interface, error) {
	if err == nil {
		c.options.OnCatchUp(c.ledger.Revision())
	}
	return w, err
}

// consistent asks for the newest state instead of what a watch cache holds: the
// API server pages only such lists, and a start must not begin in the past. A
// list without a limit is the pager's way out of an expired page: it is left as
// it is, because only a first page would come of it.
func consistent(o metav1.ListOptions) metav1.ListOptions {
	if o.Limit > 0 && o.Continue == "" {
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
	return o
}

func (c *Cache) compactPods(page *v1.PodList) *metainternalversion.List {
	list := &metainternalversion.List{ListMeta: page.ListMeta, Items: make([]runtime.Object, len(page.Items))}
	for i := range page.Items {
		list.Items[i] = Compact(c.table, &page.Items[i])
	}
	return list
}

func (c *Cache) compactNodes(page *v1.NodeList) *metainternalversion.List {
	list := &metainternalversion.List{ListMeta: page.ListMeta, Items: make([]runtime.Object, len(page.Items))}
	for i := range page.Items {
		list.Items[i] = newNodeRecord(c.table, &page.Items[i])
	}
	return list
}

// newReflector makes a reflector that ends soon after ctx does.
func (c *Cache) newReflector(ctx context.Context, name string, source cache.ListerWatcher, expected runtime.Object, store cache.ReflectorStore) *cache.Reflector {
	r := cache.NewReflectorWithOptions(source, expected, store, cache.ReflectorOptions{
		Name:  name,
		Clock: endingClock{WithTicker: clock.RealClock{}, ctx: ctx},
		Backoff: &wait.Backoff{
			Duration: backoffFirst, Cap: backoffMost, Factor: backoffFactor, Jitter: backoffJitter,
			Steps: int(math.Ceil(float64(backoffMost) / float64(backoffFirst))),
		},
	})
	r.WatchListPageSize = c.options.PageSize
	return r
}

// endingClock is a clock whose After fires at the end of ctx at the latest. The
// reflector waits on After alone between attempts to reach an API server that
// refuses connections; with this, Stop need not wait for it.
type endingClock struct {
	clock.WithTicker
	ctx context.Context
}

func (c endingClock) After(d time.Duration) <-chan time.Time {
	fired := make(chan time.Time, 1)
	fire := func() {
		select {
		case fired <- c.Now():
		default: // the other one of the two was first
		}
	}
	forget := context.AfterFunc(c.ctx, fire)
	time.AfterFunc(d, func() {
		forget()
		fire()
	})
	return fired
}
