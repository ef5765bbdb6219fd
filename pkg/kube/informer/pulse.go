package informer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// quiet is how long a watch may say nothing before it is ended for another one. An API server that has
	// nothing to report sends a bookmark each minute (defaultBookmarkFrequency of its watch cache).
	quiet = 70 * time.Second
	// StaleAfter is how long a watch may say nothing until what is known by it is too old to decide on.
	StaleAfter = 90 * time.Second
	// hurriedTimeout is the shortest watch that an API server sends a bookmark in: it does so two seconds
	// before the end.
	hurriedTimeout = 3 // seconds
	// shortWatch is how long a watch has to last to be followed by another watch: client-go takes one that ended
	// sooner, and said nothing, for a failure, and lists everything anew.
	shortWatch = time.Second
	// ahead is how many objects are decoded before the reader takes them. While all of a cluster comes, the decoder and
	// the reader would have to wait for each other at each of them.
	ahead = 64
)

// Stale returns "" where something was received of all kinds lately, else the kind whose watch has been silent for too
// long to decide on what is known. ages are by the plural names of kinds.
func Stale(ages map[string]time.Duration) string {
	for _, plural := range slices.Sorted(maps.Keys(ages)) {
		if age := ages[plural]; age > StaleAfter {
			return fmt.Sprintf("nothing was heard of %s for %s", plural, age.Round(time.Second))
		}
	}
	return ""
}

// Pulse records when the watch of some kind last received anything. The zero value is usable.
type Pulse struct {
	mu      sync.Mutex // guards what follows
	heard   time.Time  // zero: never
	trouble error      // why nothing could be read; nil where something was received since
	current *heardWatch
	hurried bool // the next watch is to bring a bookmark soon
}

// Heard records that something came from the API server just now.
func (p *Pulse) Heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard, p.trouble = time.Now(), nil
}

// Failed records why nothing could be read from the API server.
func (p *Pulse) Failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = err
}

// Trouble returns why nothing could be read, nil where something was received since.
func (p *Pulse) Trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trouble
}

// Troubles says why kinds, by their plural names, cannot be read, and what to do about it; "" where all errors are nil.
func Troubles(troubles map[string]error) string {
	var texts []string
	for _, plural := range slices.Sorted(maps.Keys(troubles)) {
		if err := troubles[plural]; err != nil {
			texts = append(texts, remedy(plural, err))
		}
	}
	return strings.Join(texts, "; ")
}

// remedy says why something cannot be read or written, and what to do about it.
func remedy(plural string, err error) string {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Sprintf("the API server denies this server %s (%s): apply manifests/base/rbac.yaml", plural, err)
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the API server knows no %s (%s): apply manifests/crd", plural, err)
	default:
		return fmt.Sprintf("%s: %s", plural, err)
	}
}

// Age returns how long ago anything was received; 0 where nothing ever was.
func (p *Pulse) Age() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.heard.IsZero() {
		return 0
	}
	return time.Since(p.heard)
}

// Watch starts a watch with begin, and records what it receives.
func (p *Pulse) Watch(
	ctx context.Context, o metav1.ListOptions, begin func(context.Context, metav1.ListOptions) (watch.Interface, error),
) (watch.Interface, error) {
	p.mu.Lock()
	if p.hurried && o.SendInitialEvents == nil {
		seconds := int64(hurriedTimeout)
		o.TimeoutSeconds = &seconds
	}
	p.hurried = false
	p.mu.Unlock()
	inner, err := begin(ctx, o)
	if err != nil {
		return nil, err
	}
	w := &heardWatch{
		Interface: inner, pulse: p, begun: time.Now(), out: make(chan watch.Event, ahead), stopped: make(chan struct{}),
	}
	w.listing.Store(o.SendInitialEvents != nil && *o.SendInitialEvents)
	p.mu.Lock()
	p.current = w
	if p.hurried && !w.listing.Load() {
		time.AfterFunc(shortWatch, w.Stop) // Hurry was called while it began
	}
	p.mu.Unlock()
	go w.pass()
	return w, nil
}

// Hurry ends the watch for one that brings a bookmark within about a second. A watch that is still sending the full
// state goes on: it reports as much when it has sent it, and would have to begin again.
func (p *Pulse) Hurry(ctx context.Context) {
	if w := p.hurry(); w != nil && !w.listing.Load() {
		w.end(ctx)
	}
}

// hurry makes the next watch bring a bookmark soon. It returns the present one, nil where there is none.
func (p *Pulse) hurry() *heardWatch {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hurried = true
	return p.current
}

// end stops a watch as soon as client-go does not take that for a failure.
func (w *heardWatch) end(ctx context.Context) {
	if Pause(ctx, shortWatch-time.Since(w.begun)) {
		w.Stop()
	}
}

// Run ends watches that have gone silent, until ctx ends: a connection may be dead without an error.
func (p *Pulse) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := quiet - p.Age()
		if wait <= 0 {
			if w := p.hurry(); w != nil {
				w.end(ctx)
			}
			wait = hurriedTimeout * time.Second
		}
		Pause(ctx, wait)
	}
}

// heardWatch passes on the events of a watch, and records them in its pulse. Its goroutine ends when the reader
// stops it, as the reader has to, or when the watch ends.
type heardWatch struct {
	watch.Interface
	pulse   *Pulse
	begun   time.Time
	listing atomic.Bool // it is sending the full state
	out     chan watch.Event
	once    sync.Once
	stopped chan struct{}
}

// ResultChan implements watch.Interface.
func (w *heardWatch) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *heardWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.Interface.Stop()
}

func (w *heardWatch) pass() {
	defer close(w.out)
	for {
		select {
		case event, ok := <-w.Interface.ResultChan():
			if !ok {
				return
			}
			if event.Type != watch.Error {
				w.pulse.Heard()
			}
			if event.Type == watch.Bookmark {
				w.listing.Store(false) // the first one says that the full state is sent
			}
			select {
			case w.out <- event:
			case <-w.stopped:
				return
			}
		case <-w.stopped:
			return
		}
	}
}
