package rest

import (
	"context"
	"errors"
	"time"

	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// readyPause is the time between looks at a server that is not ready.
	readyPause = 200 * time.Millisecond
)

// Watch implements reserver.Reserver.
func (a *API) Watch(ctx context.Context, o reserver.WatchOptions) (*reserver.Watcher, error) {
	instance, revision, err := reserver.ParseEventID(o.After)
	if err != nil {
		return nil, err
	}
	leave, why := a.calls.enter()
	if why != "" {
		return nil, &reserver.UnavailableError{Err: errors.New(why)}
	}
	return reserver.NewWatcher(ctx, func(ctx context.Context, send func(*reserver.Event) bool) {
		defer leave()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(a.calls.ctx, cancel)()
		a.feed(&goSink{api: a, ctx: ctx, tell: send}, o.After != "" && instance == a.instance, revision, o.Refusals)
	}), nil
}

// feed tells a Go watcher all that happens until it ends or the server does.
func (a *API) feed(w *goSink, resume bool, revision uint64, withRefusals bool) {
	wake, cancel := a.o.Ledger.Subscribe()
	defer cancel()
	refusals, end := a.feedRefusals(a.readerOf(identity.Inside(w.ctx)), withRefusals)
	defer end()
	for a.awaitReady(w) {
		if !resume {
			snapshot, err := a.snapshot(w.ctx, "")
			if err != nil { // busy with others for seconds, or the watcher has ended
				w.send(&reserver.Event{Type: reserver.DisconnectedEvent, Err: err})
				continue
			}
			revision = a.sendSnapshot(w, snapshot)
		}
		resume = false
		if _, expired := a.follow(w, revision, wake, refusals); !expired {
			return
		}
	}
}

// awaitReady waits until the account is complete. It reports false where the
// watcher or the server ends before.
func (a *API) awaitReady(w *goSink) bool {
	for told := false; ; told = true {
		select {
		case <-a.o.Done:
			return false
		case <-w.gone():
			return false
		default:
		}
		why := a.o.Arbiter.Undecided()
		if why == "" {
			return true
		}
		if !told {
			w.send(&reserver.Event{Type: reserver.DisconnectedEvent, Err: &reserver.UnavailableError{Err: errors.New(why)}})
		}
		timer := time.NewTimer(readyPause)
		select {
		case <-a.o.Done:
		case <-w.gone():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// goSink is the sink of a watch of this process.
type goSink struct {
	api    *API
	ctx    context.Context
	tell   func(*reserver.Event) bool
	events []ledger.Event // of changes, kept for the next time
}

func (w *goSink) send(e *reserver.Event) { w.tell(e) }
func (w *goSink) flush()                 {}
func (w *goSink) gone() <-chan struct{}  { return w.ctx.Done() }

func (w *goSink) changes(after uint64) (last uint64, ok bool) {
	w.events, last, ok = w.api.tellChanges(w, w.events, after)
	return last, ok
}
