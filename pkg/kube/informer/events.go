package informer

import (
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"
)

// repeatAfter is how long Warn does not repeat the same note on an object, and maxTold on how many objects it
// remembers its notes.
const (
	repeatAfter = 5 * time.Minute
	maxTold     = 4096
)

// maxNote is the longest note the API takes in an Event.
const maxNote = 1024

// Events writes Events. Each is a write to the API server: beyond the burst they are dropped, so whatever one
// says must be visible elsewhere, too. The limits of client-go's own recorder are per object, and there are many.
type Events struct {
	recorder events.EventRecorder
	limiter  *rate.Limiter
	warning  sync.Mutex // so that what several warn of at once is written once
	told     *lru.Cache // by UID
}

type told struct {
	note  string
	until time.Time
}

// NewEvents returns Events that write at most perSecond Events per second, after a burst.
func NewEvents(recorder events.EventRecorder, perSecond rate.Limit, burst int) *Events {
	return &Events{recorder: recorder, limiter: rate.NewLimiter(perSecond, burst), told: lru.New(maxTold)}
}

// Tell writes an Event of a type, Normal or Warning, and returns false where it is dropped.
func (e *Events) Tell(on *v1.ObjectReference, kind, reason, action, note string) bool {
	if !e.limiter.Allow() {
		return false
	}
	e.recorder.Eventf(on, nil, kind, reason, action, "%s", Clip(note, maxNote))
	return true
}

// Warn writes a Warning on an object, about something that stays true for long, once in a while.
func (e *Events) Warn(on *v1.ObjectReference, reason, action, note string) {
	e.warning.Lock()
	defer e.warning.Unlock()
	last, known := e.told.Get(on.UID)
	if known && last.(told).note == note && time.Now().Before(last.(told).until) {
		return
	}
	if e.Tell(on, v1.EventTypeWarning, reason, action, note) {
		e.told.Add(on.UID, told{note, time.Now().Add(repeatAfter)})
	}
}

// Clip bounds the length of a text for people.
func Clip(text string, length int) string {
	if len(text) <= length {
		return text
	}
	return strings.ToValidUTF8(text[:length-3], "") + "..."
}

// PodReference names a pod for an Event.
func PodReference(namespace, name string, uid types.UID) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: uid}
}
