package informer

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

// InTurn orders a list so that namespaces take turns: the first of each namespace, then the second of each, and so on.
// Otherwise the order stays.
func InTurn[T any](list []T, namespaceOf func(T) string) []T {
	all := turns[T]{namespaceOf: namespaceOf, keys: map[string][]T{}}
	for _, t := range list {
		all.Push(t)
	}
	ordered := make([]T, len(list))
	for i := range ordered {
		ordered[i] = all.Pop()
	}
	return ordered
}

// NewTurnsQueue returns a queue in which namespaces take turns. A key that is added again after a failure waits for
// first, then twice as long each time, up to most.
func NewTurnsQueue[K comparable](name string, first, most time.Duration,
	namespaceOf func(K) string,
) workqueue.TypedRateLimitingInterface[K] {
	keys := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{
		Name: name, Queue: &turns[K]{namespaceOf: namespaceOf, keys: map[string][]K{}},
	})
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](first, most),
		workqueue.TypedRateLimitingQueueConfig[K]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
				Name: name, Queue: keys,
			}),
		})
}

// turns is a workqueue.Queue in which namespaces take turns: one with many keys does not delay those of others.
// It is not safe for concurrent use: workqueue does not require that.
type turns[K any] struct {
	namespaceOf func(K) string
	keys        map[string][]K // by namespace, oldest first; no list is empty
	next        []string       // the namespaces with keys, in the order of their turns
	count       int
}

// Touch implements workqueue.Queue: a key that is added once more stays where it is.
func (t *turns[K]) Touch(K) {}

// Push implements workqueue.Queue.
func (t *turns[K]) Push(key K) {
	namespace := t.namespaceOf(key)
	if len(t.keys[namespace]) == 0 {
		t.next = append(t.next, namespace)
	}
	t.keys[namespace] = append(t.keys[namespace], key)
	t.count++
}

// Len implements workqueue.Queue.
func (t *turns[K]) Len() int { return t.count }

// Pop implements workqueue.Queue.
func (t *turns[K]) Pop() K {
	namespace := t.next[0]
	keys := t.keys[namespace]
	t.next, t.count = t.next[1:], t.count-1
	if len(keys) == 1 {
		delete(t.keys, namespace)
	} else {
		t.keys[namespace] = keys[1:]
		t.next = append(t.next, namespace)
	}
	return keys[0]
}
