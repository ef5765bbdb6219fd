package follow

// turns is a workqueue.Queue in which namespaces take turns: one with many keys does not keep those of others waiting.
// It is not safe for concurrent use, as workqueue has it.
type turns[K comparable] struct {
	namespaceOf func(K) string
	keys        map[string][]K // by namespace, the first first; none is empty
	next        []string       // the namespaces with keys, that whose turn it is first
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
