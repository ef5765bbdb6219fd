package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

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
		(&watcher{client: c, last: o.After, send: send}).run(ctx)
	}), nil
}

// watcher is a stream of events over as many connections as it takes.
type watcher struct {
	client   *Client
	send     func(*reserver.Event) bool
	last     string // the ID to go on after; empty: begin with a snapshot
	partial  bool   // the snapshot is not complete yet
	received bool   // this connection has told something
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
	get, err := w.client.newRequest(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	get.Header.Set("Accept", "text/event-stream")
	if w.last != "" {
		get.Header.Set("Last-Event-ID", w.last)
	}
	response, err := w.client.http.Do(get)
	if err != nil {
		return nil, &reserver.UnavailableError{Err: fmt.Errorf("asking GlobalReserve: %w", err)}
	}
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
	messages := newMessages(body, int(w.client.options.MaxAnswer))
	w.partial = false
	for {
		alive.Reset(idle)
		m, err := messages.next()
		if err != nil {
			return &reserver.UnavailableError{Err: err}
		}
		alive.Stop() // a reader that is slow is not the server's fault
		if m.name == "expired" {
			return errExpired
		}
		event, err := w.decode(m)
		if err != nil {
			return &reserver.UnavailableError{Err: err}
		}
		if event == nil {
			continue // a kind of event that newer servers have
		}
		w.received = true
		if !w.send(event) {
			return context.Canceled
		}
		w.partial = event.Snapshot != nil && event.Snapshot.More
		if event.ID != "" {
			w.last = event.ID
		}
	}
}

// decode makes an event of a message; nil where its kind is not known.
func (w *watcher) decode(m message) (*reserver.Event, error) {
	event := &reserver.Event{Type: reserver.EventType(m.name), ID: m.id}
	var err error
	if event.Instance, event.Revision, err = reserver.ParseEventID(m.id); err != nil {
		return nil, err
	}
	into := event.Data()
	switch {
	case event.Type == reserver.HeartbeatEvent:
		return event, nil
	case into == nil:
		return nil, nil
	}
	if err := json.Unmarshal(m.data, into); err != nil {
		return nil, fmt.Errorf("the watch's %q event is not one of GlobalReserve: %w: %s", m.name, err, quote(m.data))
	}
	if event.Snapshot != nil {
		event.First = !w.partial
		event.Instance = event.Snapshot.Instance
	}
	return event, nil
}
