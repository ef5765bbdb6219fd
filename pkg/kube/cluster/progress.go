package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// reached is how far the watch of one kind has come. The zero value is usable.
type reached struct {
	mu   sync.Mutex    // guards what follows
	seen uint64        // all changes up to this resource version have reached the ledger
	more chan struct{} // closed when seen grows; nil while nobody waits
}

// wait returns nil once all changes up to a resource version are in, or the error of ctx.
func (r *reached) wait(ctx context.Context, version uint64) error {
	for {
		r.mu.Lock()
		if version <= r.seen {
			r.mu.Unlock()
			return nil
		}
		if r.more == nil {
			r.more = make(chan struct{})
		}
		more := r.more
		r.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *reached) has(version uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return version <= r.seen
}

// record records that all changes up to a resource version are in.
func (r *reached) record(version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if version <= r.seen {
		return
	}
	if r.seen = version; r.more != nil {
		close(r.more)
		r.more = nil
	}
}

// watched is one of the two kinds that a Cache follows.
type watched struct {
	plural string
	cache.ListerWatcher
	pulse  informer.Pulse
	synced *informer.Latch // open once all that existed at the start are in the ledger
	*reached
	// objects is how many were in the last full state.
	objects atomic.Int64
	// relist makes run list everything anew; nil before the first list.
	relist atomic.Pointer[context.CancelFunc]
}

func (w *watched) follow(plural string, source cache.ListerWatcher, r *reached) {
	w.plural, w.ListerWatcher, w.reached, w.synced = plural, source, r, informer.NewLatch()
}

// run lists and watches until ctx ends, and lists anew whenever that is asked for.
func (w *watched) run(ctx context.Context, expected runtime.Object, store cache.ReflectorStore) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { w.pulse.Run(ctx) })
	for ctx.Err() == nil {
		listing, end := context.WithCancel(ctx)
		w.relist.Store(&end)
		newReflector(w, expected, store).RunWithContext(listing)
		end()
	}
}

const (
	// quickToList is how many objects are listed sooner than a watch reports how far it is.
	quickToList = 10_000
	// hurriedFor is how long to wait for the bookmark of a hurried watch until another one is begun.
	hurriedFor = 4 * time.Second
)

// CatchUp returns once the ledger has all changes of pods and nodes that the API server had carried out
// when it was called, or the error of ctx. Few objects are listed anew. Where there are many, the watch is begun
// anew, because only a new watch reports soon how far it is: within one or two seconds.
func (c *Cache) CatchUp(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	for _, w := range []*watched{&c.podWatch, &c.nodeWatch} {
		running.Go(func() error { return w.catchUp(ctx) })
	}
	return running.Wait()
}

func (w *watched) catchUp(ctx context.Context) error {
	now, err := cache.ToListerWithContext(w.ListerWatcher).ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("asking how far the cluster's %s are: %w", w.plural, err)
	}
	list, err := meta.ListAccessor(now)
	if err != nil {
		return err
	}
	version := ParseVersion(list.GetResourceVersion())
	for relisted := false; !w.has(version); {
		if relist := w.relist.Load(); relist != nil && !relisted && w.objects.Load() <= quickToList {
			(*relist)()
			relisted = true // a list that takes longer than this waits is not begun again
		} else {
			w.pulse.Hurry(ctx)
		}
		waiting, cancel := context.WithTimeout(ctx, hurriedFor)
		_ = w.wait(waiting, version) // has reports how it ended
		cancel()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting for the changes of %s up to version %d: %w", w.plural, version, err)
		}
	}
	return nil
}

// News returns how pods and nodes are followed, also while they are not listed.
func (c *Cache) News() informer.News {
	news := informer.NewsOf()
	for _, w := range []*watched{&c.podWatch, &c.nodeWatch} {
		news.Ages[w.plural], news.Troubles[w.plural] = w.pulse.Age(), w.pulse.Trouble()
	}
	return news
}
