package informer

import (
	"context"
	"sync"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// eventBatch is how many of the ledger's events are read at once.
const eventBatch = 1024

// Journal reads the ledger's events, each once and in order. It has no lock of its own: CatchUp and Rewind are called
// with the lock of the listener held. Make one with NewJournal.
type Journal struct {
	ledger ledger.Reader
	note   func(e *ledger.Event)
	lost   func()
	seen   uint64 // events are read up to here
	buffer []ledger.Event
}

// NewJournal returns a Journal of the events from now on. note is called with each event. lost is called where more has
// happened than the ledger remembers: what is known has to be concluded anew from the current state.
func NewJournal(l ledger.Reader, note func(e *ledger.Event), lost func()) *Journal {
	return &Journal{ledger: l, note: note, lost: lost, seen: l.Revision()}
}

// CatchUp reads the events up to now.
func (j *Journal) CatchUp() {
	for {
		events, ok := j.ledger.EventsSince(j.buffer[:0], j.seen, eventBatch)
		if !ok {
			j.seen = j.ledger.Revision()
			j.lost()
			return
		}
		j.buffer = events[:0]
		for i := range events {
			j.seen = events[i].Revision
			j.note(&events[i])
		}
		if len(events) < eventBatch {
			return
		}
	}
}

// Rewind has the events since a revision read again.
func (j *Journal) Rewind(revision uint64) { j.seen = min(j.seen, revision) }

// Run reads the events as they come, with lock held, until ctx ends.
func (j *Journal) Run(ctx context.Context, lock sync.Locker) error {
	wake, unsubscribe := j.ledger.Subscribe()
	defer unsubscribe()
	for {
		lock.Lock()
		j.CatchUp()
		lock.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		}
	}
}
