package cluster

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// follower receives the objects of a kind in order, as compact forms (R) of the API's objects (T).
type follower[T, R any] interface {
	compact(object *T) *R
	observe(r *R)
	remove(last *R)
	// replace receives a full state: the first one, and later the one after a gap in the watch.
	replace(all []*R, version uint64)
	// seen is called when everything up to a resource version was reported.
	seen(version uint64)
}

// sink is the store that a reflector writes to.
type sink[T, R any] struct{ follower[T, R] }

// Transformer makes objects compact before the reflector collects them.
func (s sink[T, R]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.record(obj) }
}

func (s sink[T, R]) record(obj any) (*R, error) {
	switch o := obj.(type) {
	case *R:
		return o, nil
	case *T:
		return s.compact(o), nil
	default:
		return nil, fmt.Errorf("expected a %T from the API server, got %T", new(T), obj)
	}
}

// Add implements cache.ReflectorStore.
func (s sink[T, R]) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s sink[T, R]) Update(obj any) error {
	r, err := s.record(obj)
	if err == nil {
		s.observe(r)
	}
	return err
}

// Delete implements cache.ReflectorStore. The object carries the resource version of the deletion.
func (s sink[T, R]) Delete(obj any) error {
	r, err := s.record(obj)
	if err == nil {
		s.remove(r)
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (s sink[T, R]) Replace(items []any, resourceVersion string) error {
	records := make([]*R, len(items))
	for i, item := range items {
		var err error
		if records[i], err = s.record(item); err != nil {
			return err
		}
	}
	s.replace(records, ParseVersion(resourceVersion))
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (s sink[T, R]) Bookmark(resourceVersion string) error {
	s.seen(ParseVersion(resourceVersion))
	return nil
}

// Resync implements cache.ReflectorStore. The Comparer does what it would be for.
func (sink[T, R]) Resync() error { return nil }
