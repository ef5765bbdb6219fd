package policy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// kubeletData is the symlink that the kubelet swaps when a mounted ConfigMap changes (the
// AtomicWriter of k8s.io/kubernetes/pkg/volume/util).
const kubeletData = "..data"

// WatcherOptions says what to watch and whom to tell. Only Path is required.
type WatcherOptions struct {
	// Path is the policy file.
	Path string
	// Debounce is how long to wait after the first sign of a change for the change to be complete;
	// 0 means 100 ms.
	Debounce time.Duration
	// PollInterval is how often the file is read without any sign of a change, because signs get
	// lost on some file systems; 0 means one minute.
	PollInterval time.Duration
	// OnReload is called with each policy after it is in force, the first one included.
	OnReload func(*Policy)
	// OnError is called when a change could not be put in force, once per change, and when events of
	// the directory cannot be had or were lost. The policy before stays in force.
	OnError func(error)
}

// Watcher keeps a Store in step with a file. The callbacks are never called at the same time.
type Watcher struct {
	options WatcherOptions
	store   *Store
	// seen is the state of the file that was acted on last: a hash of its content, or the error met
	// on reading it. It belongs to Load, and then to Run.
	seen string
}

// NewWatcher makes a Watcher that puts the policies of a file into store. It starts nothing.
func NewWatcher(store *Store, options WatcherOptions) *Watcher {
	if options.Debounce <= 0 {
		options.Debounce = 100 * time.Millisecond
	}
	if options.PollInterval <= 0 {
		options.PollInterval = time.Minute
	}
	if options.OnReload == nil {
		options.OnReload = func(*Policy) {}
	}
	if options.OnError == nil {
		options.OnError = func(error) {}
	}
	return &Watcher{options: options, store: store}
}

// Load reads the file into the store. A server that starts calls it first, and does
// without starting where it fails.
func (w *Watcher) Load() error { return w.reload() }

// Run follows the file's changes until ctx ends, those since Load included.
func (w *Watcher) Run(ctx context.Context) error {
	dir := filepath.Dir(w.options.Path)
	notify, err := watchDir(dir)
	if err != nil {
		w.options.OnError(fmt.Errorf("policy file %s: changes are noticed only every %v, because its directory cannot be watched: %w",
			w.options.Path, w.options.PollInterval, err))
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
	poll := time.NewTicker(w.options.PollInterval)
	defer poll.Stop()
	settled := time.NewTimer(w.options.Debounce)
	settled.Stop()
	defer settled.Stop()
	waiting := false

	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			// The timer is not set again by later signs, so that steady writes delay nothing for ever.
			if w.concerns(e) && !waiting {
				settled.Reset(w.options.Debounce)
				waiting = true
			}
		case <-settled.C:
			waiting = false
			w.check()
		case err := <-lost:
			// The event that mattered may be among the lost ones.
			w.options.OnError(fmt.Errorf("policy file %s: events of its directory were lost, it is read again: %w", w.options.Path, err))
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
	return e.Op != fsnotify.Chmod && (name == filepath.Base(w.options.Path) || name == kubeletData)
}

// check reloads and reports a failure.
func (w *Watcher) check() {
	if err := w.reload(); err != nil {
		w.options.OnError(fmt.Errorf("the policy before stays in force: %w", err))
	}
}

// reload puts the file in force if it differs from what was seen last. The same bad file is an
// error only once.
func (w *Watcher) reload() error {
	data, err := readFile(w.options.Path)
	state := fmt.Sprintf("content: %x", sha256.Sum256(data))
	if err != nil {
		state = "error: " + err.Error()
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
		return fmt.Errorf("policy file %s: %w", w.options.Path, err)
	}
	w.store.Set(p)
	w.options.OnReload(p)
	return nil
}
