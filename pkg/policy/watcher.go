package policy

import (
	"context"
	"fmt"
	"time"
)

// pollInterval is how often the file is read. That is cheap, and sure: events of file systems get lost on some of them.
const pollInterval = time.Second

// Watcher keeps a Store in step with a file. The callbacks are never called at the same time.
type Watcher struct {
	store *Store
	path  string
	// onReload is called with each policy after it is in force, the first one included.
	onReload func(*Policy)
	// onError is called when a change could not be put in force, once per change. The policy before stays in force.
	onError func(error)
	// acted is the content of the file, or the error met on reading it, that was acted on last, and seen what was there
	// at the last look. They belong to Load, and then to Run.
	acted, seen string
}

// NewWatcher makes a Watcher that puts the policies of a file into store. It starts nothing.
func NewWatcher(store *Store, path string, onReload func(*Policy), onError func(error)) *Watcher {
	return &Watcher{store: store, path: path, onReload: onReload, onError: onError}
}

// Run follows the file's changes until ctx ends, those since Load included.
func (w *Watcher) Run(ctx context.Context) error {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
			w.check()
		}
	}
}

// check acts on a change that two looks have found: a program that writes the file in place may be in the middle of it.
func (w *Watcher) check() {
	before := w.seen
	data, err := w.look()
	if w.seen != before {
		return
	}
	if err := w.act(data, err); err != nil {
		w.onError(fmt.Errorf("the policy before stays in force: %w", err))
	}
}

// Load puts the file in force if it differs from what was acted on last. A server calls it first, and does not start
// where it fails.
func (w *Watcher) Load() error {
	return w.act(w.look())
}

func (w *Watcher) look() ([]byte, error) {
	data, err := readFile(w.path)
	if w.seen = string(data); err != nil {
		w.seen = err.Error()
	}
	return data, err
}

// act puts what was seen in force, or returns why it cannot: for the same bad file only once.
func (w *Watcher) act(data []byte, unread error) error {
	if w.seen == w.acted {
		return nil
	}
	w.acted = w.seen
	if unread != nil {
		return unread
	}
	p, err := Parse(data)
	if err != nil {
		return fmt.Errorf("policy file %s: %w", w.path, err)
	}
	w.store.Set(p)
	w.onReload(p)
	return nil
}
