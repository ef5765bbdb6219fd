package reserve

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// writers keep apart the requests that write the same Reservation object.
type writers struct {
	stop <-chan struct{}

	mu   sync.Mutex
	open map[types.NamespacedName]chan struct{} // closed when the write has ended
}

// enter waits until nobody else writes the object and begins. ok is false where that took too long, or ctx ended. leave
// ends it.
func (w *writers) enter(ctx context.Context, key types.NamespacedName) (leave func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for {
		w.mu.Lock()
		if w.open[key] == nil {
			done := make(chan struct{})
			w.open[key] = done
			w.mu.Unlock()
			return func() { w.leave(key, done) }, true
		}
		w.mu.Unlock()
		if !w.wait(ctx, key) {
			return nil, false
		}
	}
}

func (w *writers) leave(key types.NamespacedName, done chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, key)
	close(done)
}

// wait waits until nobody writes an object. It reports false where that took too long, or ctx ended.
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

// writing returns what is closed when the write of an object ends, nil where nobody writes it.
func (w *writers) writing(key types.NamespacedName) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[key]
}
