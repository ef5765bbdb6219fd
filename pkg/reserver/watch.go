package reserver

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// WatchOptions say where a watch begins.
type WatchOptions struct {
	// After is the ID of an event seen before: the watch goes on with the one after
	// it, or begins with a snapshot where the server does not have that any more.
	// Empty: it begins with a snapshot.
	After string
	// Refusals: it also tells of what is refused from its beginning on, as Refusals does. What is refused while the
	// connection is lost it does not tell.
	Refusals bool
}

// Watcher is a stream of changes. It goes on over broken connections and restarts
// of the server by itself: from the last event where it can, else from a new
// snapshot.
type Watcher struct {
	cancel context.CancelFunc
	events chan Event
	done   chan struct{} // closed when the feed has ended
}

// eventBuffer is how many events a reader may be late by before the feed waits for it.
const eventBuffer = 256

// NewWatcher returns a Watcher of what feed sends until it returns, which it does soon
// after its context ends. send waits for a reader that is slow, and reports false where
// the context has ended.
func NewWatcher(ctx context.Context, feed func(ctx context.Context, send func(*Event) bool)) *Watcher {
	ctx, cancel := context.WithCancel(ctx)
	w := &Watcher{cancel: cancel, events: make(chan Event, eventBuffer), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer close(w.events)
		defer cancel()
		feed(ctx, func(e *Event) bool {
			select {
			case w.events <- *e:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	return w
}

// Events returns the channel the changes come on, in their order. It is closed
// when the watcher has ended; one in the server's own process ends with the
// server. Whoever does not read it is cut off by the server
// after a while, and gets a new snapshot then.
func (w *Watcher) Events() <-chan Event { return w.events }

// Stop ends the watcher and waits until it has. It may be called often.
func (w *Watcher) Stop() {
	w.cancel()
	<-w.done
}

// EventType tells what an Event has.
type EventType string

// The types of events.
const (
	// SnapshotEvent: Snapshot is the whole account, or a part of it. The first part
	// of each makes void all that was told before.
	SnapshotEvent   EventType = "snapshot"
	AllocationEvent EventType = "allocation"
	SlotEvent       EventType = "slot"
	NodeEvent       EventType = "node"
	// RefusalEvent: a pod was refused. It is none of the ledger's changes, and has no ID.
	RefusalEvent EventType = "refusal"
	// BookmarkEvent: all changes up to Bookmark.Revision have been told.
	BookmarkEvent EventType = "bookmark"
	// HeartbeatEvent: nothing has changed for a while, and the server is there.
	HeartbeatEvent EventType = "heartbeat"
	// DisconnectedEvent: the connection is lost, for the reason in Err, and the
	// watcher is trying to get it back. What happens meanwhile is told later.
	DisconnectedEvent EventType = "disconnected"
)

// Event is one thing a Watcher tells. Only the field that Type names is set.
type Event struct {
	Type EventType
	// ID is what to give as WatchOptions.After to go on after this event; empty where
	// that cannot be done.
	ID string
	// Instance tells runs of the server apart.
	Instance string
	// Revision is the ledger's after this event; 0 of heartbeats, disconnections, and
	// of a snapshot that is not complete.
	Revision uint64

	// Time is when the change was made, to 10 ms, or when the rest was told; zero of heartbeats and disconnections.
	Time time.Time

	// First: Snapshot is the first part of one.
	First      bool
	Snapshot   *WatchSnapshot
	Allocation *WatchAllocation
	Slot       *WatchSlot
	Node       *WatchNode
	Bookmark   *WatchBookmark
	Refusal    *Refusal
	Err        error
}

// Data returns the field that Type names, made anew where it is nil; nil for types
// without data.
func (e *Event) Data() any {
	switch e.Type {
	case SnapshotEvent:
		return filled(&e.Snapshot)
	case AllocationEvent:
		return filled(&e.Allocation)
	case SlotEvent:
		return filled(&e.Slot)
	case NodeEvent:
		return filled(&e.Node)
	case BookmarkEvent:
		return filled(&e.Bookmark)
	case RefusalEvent:
		return filled(&e.Refusal)
	default:
		return nil
	}
}

// Stamped returns Data with the time of the event in it, as a server-sent event has it.
func (e *Event) Stamped() any {
	switch e.Type {
	case AllocationEvent:
		filled(&e.Allocation).Time = &e.Time
	case SlotEvent:
		filled(&e.Slot).Time = &e.Time
	case NodeEvent:
		filled(&e.Node).Time = &e.Time
	}
	return e.Data()
}

func filled[T any](field **T) *T {
	if *field == nil {
		*field = new(T)
	}
	return *field
}

// ParseEventID takes the ID of an event apart; both parts are zero of an empty one.
// The error is a *BadRequestError.
func ParseEventID(id string) (instance string, revision uint64, err error) {
	if id == "" {
		return "", 0, nil
	}
	instance, digits, ok := strings.Cut(id, "-")
	if revision, err = strconv.ParseUint(digits, 10, 64); err != nil || !ok || instance == "" {
		return "", 0, &BadRequestError{
			Status:  http.StatusBadRequest,
			Message: fmt.Sprintf("%.100q is not the ID of an event: give one as a watch told it, or none", id),
		}
	}
	return instance, revision, nil
}

// EventID is the ID of the event of a revision; no other run of a server takes it
// for one of its own.
func EventID(instance string, revision uint64) string {
	return instance + "-" + strconv.FormatUint(revision, 10)
}
