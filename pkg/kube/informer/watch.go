package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Object is a pointer to an object of some kind.
type Object interface {
	runtime.Object
	metav1.Object
}

// Client is the part of a typed client that a Source uses; L is its list.
type Client[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Source is all objects of one kind, and the callbacks that receive them.
type Source struct {
	plural  string
	options cache.InformerOptions
	gone    func(obj any)
	failed  func(plural string, err error) // set by NewWatch
	store   atomic.Pointer[cache.Store]    // of what is known now
	pulse   Pulse
}

// NewSource returns the objects of a client. set is called with every state of an object, and whether it is of the
// first list; gone with objects that are deleted. Calls come one at a time. clients is the set that the client is of:
// fake ones cannot do all that an API server can.
func NewSource[T Object, L runtime.Object](
	clients any, plural string, client Client[L], example T, set func(obj T, initial bool), gone func(obj T),
) *Source {
	s := &Source{plural: plural}
	s.gone = func(obj any) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if obj, ok := obj.(T); ok {
			gone(obj)
		}
	}
	s.options = cache.InformerOptions{
		ObjectType: example, Transform: dropManagedFields,
		ListerWatcher: s.pulse.ListWatch(clients, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, o)
			if err == nil {
				s.pulse.Heard()
			}
			return list, err
		}, watching(client), func(err error) { s.failed(s.plural, err) }),
		Handler: cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(obj any, initial bool) { set(obj.(T), initial) },
			UpdateFunc: func(old, obj any) {
				// Another object of the name: where the watch was interrupted, no event reports that the first was deleted.
				if old.(T).GetUID() != obj.(T).GetUID() {
					gone(old.(T))
				}
				set(obj.(T), false)
			},
			DeleteFunc: s.gone,
		},
	}
	return s
}

// MadeOf makes the objects from those of another type, which the client has, before the callbacks receive them.
func (s *Source) MadeOf(example runtime.Object, transform cache.TransformFunc) *Source {
	s.options.ObjectType = example
	return s.Keeping(transform)
}

// Keeping cuts objects down to what is kept of them before the callbacks receive them.
func (s *Source) Keeping(transform cache.TransformFunc) *Source {
	s.options.Transform = transform
	return s
}

// ListWatch lists and watches all objects of a kind. The pulse records what a watch brings and why a request fails, of
// which failed is told, too. clients is the set that the client is of: fake ones cannot do all that an API server can.
func (p *Pulse) ListWatch(
	clients any, list cache.ListWithContextFunc, watching cache.WatchFuncWithContext, failed func(err error),
) cache.ListerWatcher {
	report := func(ctx context.Context, err error) {
		if err != nil && ctx.Err() == nil && !apierrors.IsResourceExpired(err) {
			p.Failed(err)
			failed(err)
		}
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			objects, err := list(ctx, consistent(o))
			report(ctx, err)
			return objects, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := p.Watch(ctx, o, watching)
			report(ctx, err)
			if utilnet.IsConnectionRefused(err) && o.SendInitialEvents != nil {
				// After such an error of its first request, a reflector waits in a way that a stop has to wait for, too
				// (watchList of client-go 0.37); after other errors it lists.
				err = errors.New(err.Error())
			}
			return w, err
		},
	}, clients)
}

// consistent asks for the newest state; a reflector would take what some API server has cached. What was acknowledged
// just before a restart must be in the first list, and the API server pages only such lists. A list without a limit
// that is to be at least as new as what is known, by a version, is left as it is: a watch cache can answer it.
func consistent(o metav1.ListOptions) metav1.ListOptions {
	if o.ResourceVersion == "0" || o.Limit > 0 && o.Continue == "" {
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
	return o
}

// watching watches with a client. It hides from a reflector that there are too many requests: like one that finds no
// connection, see ListWatch, the reflector would wait, for up to a minute.
func watching[L runtime.Object](client Client[L]) cache.WatchFuncWithContext {
	return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := client.Watch(ctx, o)
		if apierrors.IsTooManyRequests(err) && o.SendInitialEvents != nil {
			err = errors.New(err.Error())
		}
		return w, err
	}
}

// dropManagedFields saves memory: nobody here reads who wrote which field.
func dropManagedFields(obj any) (any, error) {
	// Objects without any are not written to: fake clients share them.
	if object, ok := obj.(metav1.Object); ok && len(object.GetManagedFields()) > 0 {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// Watch follows all objects of a Kind. Make one with NewWatch.
type Watch struct {
	kind    *Kind // nil: always installed
	sources []*Source
	log     logrus.FieldLogger
	advice  string // what to do where the kind is not installed
	listed  atomic.Bool
}

// NewWatch returns a Watch that does not run. kind is nil for kinds that every API server has. The objects
// of a source are reported once those of the sources before it are.
func NewWatch(kind *Kind, log logrus.FieldLogger, sources ...*Source) *Watch {
	w := &Watch{kind: kind, sources: sources, log: log, advice: "to have them: kubectl apply -k manifests/crd"}
	for _, s := range sources {
		s.failed = w.failed
	}
	return w
}

func (w *Watch) failed(plural string, err error) {
	if w.kind != nil && apierrors.IsNotFound(err) {
		w.kind.Doubt()
		return
	}
	w.log.Warnf("could not read %s; will try again: %s", plural, remedy(plural, err))
}

// Foreign says that the kind is not one of ours: most clusters do without it.
func (w *Watch) Foreign() *Watch {
	w.advice = ""
	return w
}

// Listed reports whether the kind is installed and every object there is has been reported.
func (w *Watch) Listed() bool { return w.listed.Load() }

// Stale reports whether nothing was received of some kind for so long that what is known of it is too old to decide on.
func (w *Watch) Stale() bool {
	return slices.ContainsFunc(w.sources, func(s *Source) bool { return s.pulse.Age() > StaleAfter })
}

// News is what is known of how some kinds are followed, by their plural names.
type News struct {
	// Ages says how long ago anything was received, of kinds that are listed.
	Ages map[string]time.Duration
	// Troubles says why kinds that are installed cannot be read.
	Troubles map[string]error
}

// NewsOf returns the news of some watches.
func NewsOf(watches ...*Watch) News {
	news := News{map[string]time.Duration{}, map[string]error{}}
	for _, w := range watches {
		listed, installed := w.Listed(), w.kind == nil || w.kind.Installed()
		for _, s := range w.sources {
			if listed {
				news.Ages[s.plural] = s.pulse.Age()
			}
			if err := s.pulse.Trouble(); err != nil && installed {
				news.Troubles[s.plural] = err
			}
		}
	}
	return news
}

// Lack says why none of the objects are known, and what to do about it; "" where they are, or the API server has not
// answered yet.
func (w *Watch) Lack() string {
	if w.kind != nil && w.kind.Absent() {
		return fmt.Sprintf("the cluster has no definition of %s: kubectl apply -k manifests/crd",
			strings.Join(w.kind.plurals, " and "))
	}
	return Troubles(NewsOf(w).Troubles)
}

// Get returns the newest state known of an object of the first source, nil where there is none.
func (w *Watch) Get(key string) any {
	store := w.sources[0].store.Load()
	if store == nil {
		return nil
	}
	obj, _, _ := (*store).GetByKey(key) // it has no errors
	return obj
}

// Run follows the objects until ctx ends. It calls present each time that the kind is installed and all objects have
// been reported, and missing each time that it is not installed. Their ctx ends when that changes. Either may be nil.
func (w *Watch) Run(ctx context.Context, present, missing func(ctx context.Context)) error {
	if w.kind == nil {
		w.follow(ctx, present)
		return nil
	}
	for now := w.kind.next(ctx, unknown); ctx.Err() == nil; {
		if now == installed {
			now = w.whileInstalled(ctx, present)
			continue
		}
		if w.advice != "" {
			w.log.Warnf("the cluster has no definition of %s: running without; %s",
				strings.Join(w.kind.plurals, " and "), w.advice)
		}
		if missing != nil {
			missing(ctx)
		}
		now = w.kind.next(ctx, now)
	}
	return nil
}

// whileInstalled follows the objects until the kind is not installed any more, and then reports them as gone: nothing
// else reports that. It returns the state that it ended for: the kind may be installed again by now, which is news that
// Run must not miss.
func (w *Watch) whileInstalled(ctx context.Context, present func(context.Context)) state {
	following, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { w.follow(following, present) })
	now := w.kind.next(ctx, installed)
	stop()
	running.Wait()
	for _, s := range w.sources {
		if store := s.store.Swap(nil); store != nil && ctx.Err() == nil {
			for _, obj := range (*store).List() {
				s.gone(obj)
			}
		}
	}
	return now
}

// follow lists and watches until ctx ends.
func (w *Watch) follow(ctx context.Context, present func(context.Context)) {
	var running sync.WaitGroup
	defer running.Wait()
	defer w.listed.Store(false)
	for _, s := range w.sources {
		store, informer := cache.NewInformerWithOptions(s.options)
		s.store.Store(&store)
		running.Go(func() { informer.RunWithContext(ctx) })
		running.Go(func() { s.pulse.Run(ctx) })
		select {
		case <-informer.HasSyncedChecker().Done():
		case <-ctx.Done():
			return
		}
	}
	w.listed.Store(true)
	if present != nil {
		present(ctx)
	}
	<-ctx.Done()
}
