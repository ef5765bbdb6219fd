package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
	"k8s.io/utils/clock"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// longestReconnect is the default of Options.MaxReconnect.
	longestReconnect = 10 * time.Second
	// errorAnswer bounds, in bytes, what is read of an answer that is no stream.
	errorAnswer = 64 << 10
)

// errExpired ends a stream after which there is nothing to go on from.
var errExpired = errors.New("the server does not keep the changes missed any more")

// Watch implements reserver.Reserver. It returns before there is a connection.
func (c *Client) Watch(ctx context.Context, o reserver.WatchOptions) (*reserver.Watcher, error) {
	if _, _, err := reserver.ParseEventID(o.After); err != nil {
		return nil, err
	}
	return reserver.NewWatcher(ctx, func(ctx context.Context, send func(*reserver.Event) bool) {
		(&watcher{client: c, last: o.After, refusals: o.Refusals, send: send}).run(ctx)
	}), nil
}

// watcher is a stream of events over as many connections as it takes.
type watcher struct {
	client   *Client
	send     func(*reserver.Event) bool
	last     string // the ID to go on after; empty: begin with a snapshot
	refusals bool
	partial  bool // the snapshot is not complete yet
	received bool // this connection has told something
}

func (w *watcher) run(ctx context.Context) {
	longest := w.client.options.MaxReconnect
	pause := newBackoff(longest)
	for ctx.Err() == nil {
		w.received = false
		err := w.connect(ctx)
		if w.partial || errors.Is(err, errExpired) {
			w.last = ""
		}
		if ctx.Err() != nil || !w.send(&reserver.Event{Type: reserver.DisconnectedEvent, Err: err}) {
			return
		}
		if w.received {
			pause = newBackoff(longest)
		}
		wait := pause.Step()
		var away *reserver.UnavailableError
		if errors.As(err, &away) {
			wait = max(wait, min(away.RetryAfter, longest))
		}
		w.client.pause(ctx, wait)
	}
}

// connect tells what one connection brings, and returns why it ended.
func (w *watcher) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := w.client.options.WatchIdle
	alive := w.client.options.Clock.AfterFunc(idle, func() {
		cancel(fmt.Errorf("the server gave no sign of life for %s", idle))
	})
	defer alive.Stop()
	body, err := w.open(ctx)
	if err == nil {
		defer func() { _ = body.Close() }()
		err = w.read(body, alive, idle)
	}
	if cause := context.Cause(ctx); cause != nil {
		return &reserver.UnavailableError{Err: cause} // and not what it did to the connection
	}
	return err
}

// open asks for the stream.
func (w *watcher) open(ctx context.Context) (io.ReadCloser, error) {
	r := &request{method: http.MethodGet, path: "/v1/watch"}
	if w.refusals {
		r.query = url.Values{"refusals": {"true"}}
	}
	get, err := w.client.newRequest(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	get.Header.Set("Accept", reserver.BatchMediaType)
	if w.last != "" {
		get.Header.Set("Last-Event-ID", w.last)
	}
	response, err := w.client.http.Do(get)
	if err != nil {
		return nil, w.client.unreached(err)
	}
	w.client.reached.Store(true)
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(io.LimitReader(response.Body, errorAnswer)) // the status tells enough
	if response.StatusCode == http.StatusGone {
		return nil, errExpired
	}
	return nil, r.refused(response, content)
}

// read tells the events of a stream until it ends.
func (w *watcher) read(body io.Reader, alive clock.Timer, idle time.Duration) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 32<<10), int(w.client.options.MaxAnswer))
	lines.Split(wholeLine)
	w.partial = false
	for {
		alive.Reset(idle)
		if !lines.Scan() {
			return &reserver.UnavailableError{Err: w.ended(lines.Err())}
		}
		alive.Stop() // a reader that is slow is not the server's fault
		var batch reserver.WatchBatch
		if err := json.Unmarshal(lines.Bytes(), &batch); err != nil {
			return &reserver.UnavailableError{Err: fmt.Errorf("the watch is not one of GlobalReserve: %w: %s", err,
				quote(lines.Bytes()))}
		}
		if batch.Expired {
			return errExpired
		}
		w.received = true
		if !w.tell(&batch) {
			return context.Canceled
		}
	}
}

// wholeLine is a bufio.SplitFunc. A line that is cut off is none.
func wholeLine(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if end := bytes.IndexByte(data, '\n'); end >= 0 {
		return end + 1, data[:end], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

// ended is why there are no more lines.
func (w *watcher) ended(err error) error {
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("a line of the watch is longer than %d bytes", w.client.options.MaxAnswer)
	case err == nil:
		return errors.New("the server ended the watch")
	default:
		return fmt.Errorf("reading the watch: %w", err)
	}
}

// tell tells the events of a batch. It reports false where nobody wants them any more.
func (w *watcher) tell(b *reserver.WatchBatch) bool {
	var last time.Time
	for i := range b.Changes {
		c := &b.Changes[i]
		if c.Time != nil {
			last = *c.Time
		}
		event := reserver.Event{Instance: b.Instance, Time: last}
		switch {
		case c.Allocation != nil:
			event.Type, event.Revision, event.Allocation = reserver.AllocationEvent, c.Allocation.Revision, c.Allocation
		case c.Slot != nil:
			event.Type, event.Revision, event.Slot = reserver.SlotEvent, c.Slot.Revision, c.Slot
		case c.Node != nil:
			event.Type, event.Revision, event.Node = reserver.NodeEvent, c.Node.Revision, c.Node
		default:
			continue // a kind of change that newer servers have
		}
		if !w.tellOne(&event) {
			return false
		}
	}
	event := reserver.Event{Instance: b.Instance, Revision: b.Revision}
	switch {
	case b.Snapshot != nil:
		event.Type, event.First, event.Snapshot, event.Time = reserver.SnapshotEvent, !w.partial, b.Snapshot, b.Snapshot.Time
		w.partial = b.Snapshot.More
	case b.CaughtUp:
		event.Type, event.Time = reserver.BookmarkEvent, b.Time
		event.Bookmark = &reserver.WatchBookmark{Instance: b.Instance, Revision: b.Revision, Time: b.Time}
	case b.Refusal != nil:
		event.Type, event.Refusal, event.Time = reserver.RefusalEvent, b.Refusal, b.Refusal.Time
	case len(b.Changes) > 0:
		return true
	default:
		event.Type = reserver.HeartbeatEvent
	}
	return w.tellOne(&event)
}

// tellOne tells one event, after which the watch can go on if it has a revision.
func (w *watcher) tellOne(event *reserver.Event) bool {
	if event.Revision != 0 {
		event.ID = reserver.EventID(event.Instance, event.Revision)
	}
	if !w.send(event) {
		return false
	}
	if event.ID != "" {
		w.last = event.ID
	}
	return true
}
