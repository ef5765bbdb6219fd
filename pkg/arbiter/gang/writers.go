package gang

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// writers keep apart the requests that write the same Reservation objects.
type writers struct {
	stop <-chan struct{}

	mu   sync.Mutex
	open map[types.NamespacedName]chan struct{} // closed when the write has ended
}

// enter waits until nobody else writes the objects and begins. It returns the one
// that kept it waiting too long, or until ctx ended. leave ends it.
func (w *writers) enter(ctx context.Context, keys ...types.NamespacedName) (leave func(), busy types.NamespacedName,
	ok bool,
) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for {
		w.mu.Lock()
		at := slices.IndexFunc(keys, func(key types.NamespacedName) bool { return w.open[key] != nil })
		if at < 0 {
			done := make(chan struct{})
			for _, key := range keys {
				w.open[key] = done
			}
			w.mu.Unlock()
			return func() { w.leave(keys, done) }, busy, true
		}
		w.mu.Unlock()
		if !w.wait(ctx, keys[at]) {
			return nil, keys[at], false
		}
	}
}

func (w *writers) leave(keys []types.NamespacedName, done chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		delete(w.open, key)
	}
	close(done)
}

// wait waits until nobody writes an object. It reports false where that took too
// long, or ctx ended.
func (w *writers) wait(ctx context.Context, key types.NamespacedName) bool {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for done := w.writing(key); done != nil; done = w.writing(key) {
		select {
		case <-done:
		case <-ctx.Done():
			return false
		case <-w.stop:
			return false
		}
	}
	return true
}

// writing returns what is closed when the write of an object ends, nil where nobody
// writes it.
func (w *writers) writing(key types.NamespacedName) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[key]
}
