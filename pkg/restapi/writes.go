package restapi

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// writes keeps apart the requests that write the same Reservation object, and
// owns what goes on after their answers.
type writes struct {
	patience time.Duration
	// ctx is that of every request to the API server: a write is carried through
	// even when the client that asked for it has gone.
	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup

	mu   sync.Mutex
	open map[types.NamespacedName]chan struct{} // closed when the write has ended
}

func newWrites(patience time.Duration) *writes {
	ctx, cancel := context.WithCancel(context.Background())
	return &writes{patience: patience, ctx: ctx, cancel: cancel, open: map[types.NamespacedName]chan struct{}{}}
}

func (w *writes) stop() {
	w.cancel()
	w.background.Wait()
}

// enter waits until nobody else writes the object and begins. It reports false
// where that took too long, or ctx ended. leave ends it.
func (w *writes) enter(ctx context.Context, key types.NamespacedName) (leave func(), ok bool) {
	for w.wait(ctx, key) {
		w.mu.Lock()
		if w.open[key] != nil {
			w.mu.Unlock()
			continue
		}
		done := make(chan struct{})
		w.open[key] = done
		w.mu.Unlock()
		return func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.open, key)
			close(done)
		}, true
	}
	return nil, false
}

// wait waits until nobody writes the object. It reports false where that took
// too long, or ctx ended.
func (w *writes) wait(ctx context.Context, key types.NamespacedName) bool {
	ctx, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	for {
		w.mu.Lock()
		done := w.open[key]
		w.mu.Unlock()
		if done == nil {
			return true
		}
		select {
		case <-done:
		case <-ctx.Done():
			return false
		case <-w.ctx.Done():
			return false
		}
	}
}

// isOpen reports whether somebody writes the object.
func (w *writes) isOpen(key types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[key] != nil
}

// pause waits and reports whether to go on.
func (w *writes) pause(c clock.Clock, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-w.ctx.Done():
		return false
	}
}
