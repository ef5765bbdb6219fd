package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// other stands for every label value that gets no series of its own.
const other = "other"

// maxLabelLength is that of a Kubernetes DNS subdomain name, plus as much for a resource's prefix.
const maxLabelLength = 2 * 253

// series remembers what make returned for each key. Reading takes no lock and does not allocate: a
// new key replaces the whole map, which is rare because keys are few.
type series[K comparable, V any] struct {
	make func(K) V
	mu   sync.Mutex // held while current is replaced
	// current is never changed once stored.
	current atomic.Pointer[map[K]V]
}

func newSeries[K comparable, V any](create func(K) V) *series[K, V] {
	s := &series[K, V]{make: create}
	s.current.Store(&map[K]V{})
	return s
}

func (s *series[K, V]) get(key K) V {
	if v, ok := (*s.current.Load())[key]; ok {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.current.Load()
	if v, ok := old[key]; ok {
		return v
	}
	next := maps.Clone(old)
	v := s.make(key)
	next[key] = v
	s.current.Store(&next)
	return v
}

// label bounds the values of one Prometheus label that clients can choose. The first limit values
// seen are kept, and those an administrator named; everything else, and what is no plain name, is
// shown as "other".
type label struct {
	limit   int
	mu      sync.Mutex // held while current is replaced; guards learned
	learned int
	// current is never changed once stored.
	current atomic.Pointer[map[string]struct{}]
}

func newLabel(limit int) *label {
	l := &label{limit: limit}
	l.current.Store(&map[string]struct{}{})
	return l
}

// value returns name, or "other".
func (l *label) value(name string) string {
	if _, ok := (*l.current.Load())[name]; ok {
		return name
	}
	if !isPlainName(name) {
		return other
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := (*l.current.Load())[name]; ok {
		return name
	}
	if l.learned >= l.limit {
		return other
	}
	l.learned++
	l.add(name)
	return name
}

// keep lets name through for ever, outside the limit.
func (l *label) keep(name string) {
	if !isPlainName(name) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := (*l.current.Load())[name]; !ok {
		l.add(name)
	}
}

// add assumes that mu is held. The name is cloned so as not to hold on to a request's body.
func (l *label) add(name string) {
	next := maps.Clone(*l.current.Load())
	next[strings.Clone(name)] = struct{}{}
	l.current.Store(&next)
}

// isPlainName accepts what Kubernetes allows in the names of schedulers and resources, and nothing
// that would need escaping.
func isPlainName(name string) bool {
	if name == "" || len(name) > maxLabelLength {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '_', c == '.', c == '/':
		default:
			return false
		}
	}
	return true
}
