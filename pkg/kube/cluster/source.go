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

	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// The reflectors' back-off. client-go's own (0.8 s to 30 s, doubled by jitter) suits controllers that may be late; a
// ledger that is late refuses capacity that is free, so it comes back to a restarted API server sooner.
const (
	backoffFirst  = 200 * time.Millisecond
	backoffMost   = 5 * time.Second
	backoffFactor = 2.0
	backoffJitter = 0.5
)

// pageSize is how many objects are listed at once where the API server does not stream lists.
const pageSize = 1000

// podSource lists and watches all pods. client-go's typed client speaks
// protobuf for pods and nodes unless its rest.Config names a content type.
func (c *Cache) podSource(client kubernetes.Interface) cache.ListerWatcher {
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	return c.source(client, &c.podWatch.pulse, pods.Watch, func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
		error,
	) {
		page, err := pods.List(ctx, o)
		if err != nil {
			return nil, err
		}
		return compactPage(page.ListMeta, page.Items, func(pod *v1.Pod) runtime.Object { return c.reader.Compact(pod) }), nil
	})
}

// nodeSource lists and watches all nodes.
func (c *Cache) nodeSource(client kubernetes.Interface) cache.ListerWatcher {
	nodes := client.CoreV1().Nodes()
	return c.source(client, &c.nodeWatch.pulse, nodes.Watch, func(ctx context.Context,
		o metav1.ListOptions,
	) (runtime.Object, error) {
		page, err := nodes.List(ctx, o)
		if err != nil {
			return nil, err
		}
		return compactPage(page.ListMeta, page.Items,
			func(node *v1.Node) runtime.Object { return compactNode(c.reader.Table, node) }), nil
	})
}

func compactPage[T any](meta metav1.ListMeta, items []T, compact func(*T) runtime.Object) *metainternalversion.List {
	list := &metainternalversion.List{ListMeta: meta, Items: make([]runtime.Object, len(items))}
	for i := range items {
		list.Items[i] = compact(&items[i])
	}
	return list
}

func (c *Cache) source(
	client any, pulse *informer.Pulse, watching cache.WatchFuncWithContext, list cache.ListWithContextFunc,
) cache.ListerWatcher {
	return pulse.ListWatch(client, list, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := watching(ctx, o)
		if err == nil {
			// What a watch brings first may have happened while there was none.
			c.options.OnCatchUp(c.ledger.Revision())
		}
		return w, err
	}, func(error) {}) // reflectors log it
}

// newReflector makes a reflector.
func newReflector(w *watched, expected runtime.Object, store cache.ReflectorStore) *cache.Reflector {
	r := cache.NewReflectorWithOptions(w.ListerWatcher, expected, store, cache.ReflectorOptions{
		Name: w.plural,
		Backoff: &wait.Backoff{
			Duration: backoffFirst, Cap: backoffMost, Factor: backoffFactor, Jitter: backoffJitter,
			Steps: int(math.Ceil(float64(backoffMost) / float64(backoffFirst))),
		},
	})
	r.WatchListPageSize = pageSize
	return r
}
