package rest

import (
	"context"
	"errors"
	"time"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// eventBuffer is how many events a Go watcher may be late by before its feed
	// waits for it. The journal bounds how long that may last: then it gets a new
	// snapshot.
	eventBuffer = 256
	// readyPause is the time between looks at a server that is not ready.
	readyPause = 200 * time.Millisecond
)

// Watch implements reserver.Reserver.
func (a *API) Watch(ctx context.Context, o reserver.WatchOptions) (reserver.Watcher, error) {
	instance, revision, err := reserver.ParseEventID(o.After)
	if err != nil {
		return nil, err
	}
	leave, why := a.calls.enter()
	if why != "" {
		return nil, &reserver.UnavailableError{Err: errors.New(why)}
	}
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(a.calls.ctx, cancel)
	w := &goWatcher{ctx: ctx, cancel: cancel, events: make(chan reserver.Event, eventBuffer), done: make(chan struct{})}
	go func() {
		defer leave()
		defer close(w.done)
		defer close(w.events)
		defer cancel()
		defer unlink()
		a.feed(w, o.After != "" && instance == a.instance, revision)
	}()
	return w, nil
}

// feed tells a Go watcher all that happens until it ends or the server does.
func (a *API) feed(w *goWatcher, resume bool, revision uint64) {
	wake, cancel := a.ledger.Subscribe()
	defer cancel()
	for a.awaitReady(w) {
		if !resume {
			snapshot, err := a.snapshot(w.ctx)
			if err != nil { // busy with others for seconds, or the watcher has ended
				w.send(&reserver.Event{Type: reserver.DisconnectedEvent, Err: err})
				continue
			}
			revision = a.sendSnapshot(w, snapshot)
		}
		resume = false
		if _, expired := a.follow(w, revision, wake); !expired {
			return
		}
	}
}

// awaitReady waits until the account is complete. It reports false where the
// watcher or the server ends before.
func (a *API) awaitReady(w *goWatcher) bool {
	for told := false; ; told = true {
		select {
		case <-a.done:
			return false
		case <-w.ctx.Done():
			return false
		default:
		}
		why := a.arbiter.Undecided()
		if why == "" {
			return true
		}
		if !told {
			w.send(&reserver.Event{Type: reserver.DisconnectedEvent, Err: &reserver.UnavailableError{Err: errors.New(why)}})
		}
		timer := time.NewTimer(readyPause)
		select {
		case <-a.done:
		case <-w.ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// goWatcher is a watch of this process.
type goWatcher struct {
	ctx    context.Context
	cancel context.CancelFunc
	events chan reserver.Event
	done   chan struct{} // closed when the feed has ended
}

// Events implements reserver.Watcher.
func (w *goWatcher) Events() <-chan reserver.Event { return w.events }

// Stop implements reserver.Watcher.
func (w *goWatcher) Stop() {
	w.cancel()
	<-w.done
}

// send implements sink. It waits for a reader that is slow.
func (w *goWatcher) send(e *reserver.Event) {
	select {
	case w.events <- *e:
	case <-w.ctx.Done():
	}
}

// flush implements sink.
func (w *goWatcher) flush() {}

// gone implements sink.
func (w *goWatcher) gone() <-chan struct{} { return w.ctx.Done() }
