package metrics

import (
	"strings"
	"sync"
	"unicode"

	"k8s.io/apimachinery/pkg/util/sets"
)

// other stands for every label value that gets no series of its own.
const other = "other"

// maxLabelLength is that of a Kubernetes DNS subdomain name, plus as much for a resource's prefix.
const maxLabelLength = 2 * 253

// label bounds the values of one Prometheus label that clients can choose. The first limit values seen are kept, and
// those an administrator named; everything else, and what is not printable, is shown as "other".
type label struct {
	limit int

	mu      sync.RWMutex // guards what follows
	known   sets.Set[string]
	learned int
}

func newLabel(limit int) *label { return &label{limit: limit, known: sets.New[string]()} }

// value returns name, or "other".
func (l *label) value(name string) string {
	l.mu.RLock()
	known, full := l.known.Has(name), l.learned >= l.limit
	l.mu.RUnlock()
	switch {
	case known:
		return name
	case full || !isName(name):
		return other
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.known.Has(name):
	case l.learned >= l.limit:
		return other
	default:
		l.learned++
		l.known.Insert(strings.Clone(name)) // so as not to hold on to a request's body
	}
	return name
}

// keep lets name through for ever, outside the limit.
func (l *label) keep(name string) {
	if !isName(name) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known.Insert(name)
}

// isName accepts what can be the name of a scheduler or a resource: text that can be printed.
func isName(name string) bool {
	return name != "" && len(name) <= maxLabelLength &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) })
}
