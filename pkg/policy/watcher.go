package policy

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// kubeletData is the symlink that the kubelet swaps when a mounted ConfigMap changes (the
// AtomicWriter of k8s.io/kubernetes/pkg/volume/util).
const kubeletData = "..data"

const (
	// debounce is how long to wait after the first sign of a change for the change to be complete.
	debounce = 100 * time.Millisecond
	// pollInterval is how often the file is read without any sign of a change, because signs get
	// lost on some file systems.
	pollInterval = time.Minute
)

// Watcher keeps a Store in step with a file. The callbacks are never called at the same time.
type Watcher struct {
	store *Store
	path  string
	// onReload is called with each policy after it is in force, the first one included.
	onReload func(*Policy)
	// onError is called when a change could not be put in force, once per change, and when events of
	// the directory cannot be had or were lost. The policy before stays in force.
	onError func(error)
	poll    time.Duration
	// seen is the state of the file that was acted on last: its content, or the error met on reading
	// it. It belongs to Load, and then to Run.
	seen string
}

// NewWatcher makes a Watcher that puts the policies of a file into store. It starts nothing.
func NewWatcher(store *Store, path string, onReload func(*Policy), onError func(error)) *Watcher {
	return &Watcher{store: store, path: path, onReload: onReload, onError: onError, poll: pollInterval}
}

// Run follows the file's changes until ctx ends, those since Load included.
func (w *Watcher) Run(ctx context.Context) error {
	dir := filepath.Dir(w.path)
	notify, err := watchDir(dir)
	if err != nil {
		w.onError(fmt.Errorf("policy file %s: changes are noticed only every %v, because its directory cannot be watched: %w",
			w.path, w.poll, err))
	}
	w.check()
	w.follow(ctx, notify, dir)
	return nil
}

// watchDir watches the directory and not the file: a swapped symlink or a renamed file is a new
// file that a watch on the old one says nothing about.
func watchDir(dir string) (*fsnotify.Watcher, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := notify.Add(dir); err != nil {
		_ = notify.Close()
		return nil, err
	}
	return notify, nil
}

// follow owns notify, which is nil where the directory cannot be watched.
func (w *Watcher) follow(ctx context.Context, notify *fsnotify.Watcher, dir string) {
	var events chan fsnotify.Event
	var lost chan error
	if notify != nil {
		defer func() { _ = notify.Close() }()
		events, lost = notify.Events, notify.Errors
	}
	poll := time.NewTicker(w.poll)
	defer poll.Stop()
	var settled <-chan time.Time // nil while there is no sign of a change

	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			// The timer is not set again by later signs, so that steady writes delay nothing for ever.
			if w.concerns(e) && settled == nil {
				settled = time.After(debounce)
			}
		case <-settled:
			settled = nil
			w.check()
		case err := <-lost:
			// The event that mattered may be among the lost ones.
			w.onError(fmt.Errorf("policy file %s: events of its directory were lost, it is read again: %w", w.path, err))
			w.check()
		case <-poll.C:
			if notify != nil {
				// A directory that was made anew needs a new watch. While there is none, check
				// reports that the file cannot be read.
				_ = notify.Add(dir)
			}
			w.check()
		}
	}
}

// concerns tells whether an event in the directory may mean a change of the file.
func (w *Watcher) concerns(e fsnotify.Event) bool {
	name := filepath.Base(e.Name)
	return e.Op != fsnotify.Chmod && (name == filepath.Base(w.path) || name == kubeletData)
}

// check reloads and reports a failure.
func (w *Watcher) check() {
	if err := w.Load(); err != nil {
		w.onError(fmt.Errorf("the policy before stays in force: %w", err))
	}
}

// Load puts the file in force if it differs from what was seen last. The same bad file is an
// error only once. A server that starts calls it first, and does without starting where it fails.
func (w *Watcher) Load() error {
	data, err := readFile(w.path)
	state := string(data)
	if err != nil {
		state = err.Error()
	}
	if state == w.seen {
		return nil
	}
	w.seen = state
	if err != nil {
		return err
	}
	p, err := Parse(data)
	if err != nil {
		return fmt.Errorf("policy file %s: %w", w.path, err)
	}
	w.store.Set(p)
	w.onReload(p)
	return nil
}
