package rest

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

const (
	// keptBatches is how many batches are kept for watchers that come by later. Few will do, as most watchers wait for the
	// same change.
	keptBatches = 16
	// batchPause is how long a watcher is told nothing after a batch that told it all there was. To wake a process for a
	// change costs more than all else, so the changes of that time are sent together.
	batchPause = 10 * time.Millisecond
)

// batches are changes of the ledger in the form that watchers are sent, encoded once for all of them.
type batches struct {
	mu     sync.Mutex // guards what follows; held while a batch is encoded: who else wants it waits
	kept   [keptBatches]batch
	next   int // where the next batch goes in kept
	events []ledger.Event
	buf    bytes.Buffer
}

// batch is a line that tells the changes after one revision up to another one. It is not changed.
type batch struct {
	after, last uint64
	line        []byte
}

// batchAfter returns a batch that begins after a revision, an empty one where there is no change. ok is false where the
// journal does not have the first of them any more.
func (a *API) batchAfter(after uint64) (made batch, ok bool) {
	b := a.batches
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := uint64(watchBatch)
	for i := range b.kept {
		switch k := &b.kept[i]; {
		case k.line == nil:
		case k.after == after:
			return *k, true
		case k.after > after:
			limit = min(limit, k.after-after) // from there on others have encoded them
		}
	}
	b.events, ok = a.eventsSince(b.events, after, int(limit))
	if len(b.events) == 0 {
		return batch{after: after, last: after}, ok
	}
	changes, told := make([]reserver.WatchChange, len(b.events)), make([]reserver.Event, len(b.events))
	for i := range b.events {
		e := &told[i]
		a.tellEvent(e, &b.events[i])
		changes[i] = reserver.WatchChange{Allocation: e.Allocation, Slot: e.Slot, Node: e.Node}
		if i == 0 || !e.Time.Equal(told[i-1].Time) {
			changes[i].Time = &e.Time
		}
	}
	made = batch{after: after, last: b.events[len(b.events)-1].Revision}
	b.buf.Reset()
	if writeBatch(&b.buf, &reserver.WatchBatch{Instance: a.instance, Revision: made.last, Changes: changes}) != nil {
		return batch{}, false // a client that starts anew does without
	}
	made.line = slices.Clone(b.buf.Bytes())
	b.kept[b.next] = made
	b.next = (b.next + 1) % keptBatches
	return made, true
}

func writeBatch(to *bytes.Buffer, b *reserver.WatchBatch) error {
	if err := json.MarshalWrite(to, b); err != nil {
		return err
	}
	return to.WriteByte('\n')
}

// batchStream tells a watcher by lines of reserver.WatchBatch.
type batchStream struct {
	*connection
	api     *API
	buf     bytes.Buffer
	tellAll time.Time // when the last batch was sent, if that had all there was
}

// begin implements watchSink.
func (s *batchStream) begin() { s.connection.begin(reserver.BatchMediaType) }

// changes implements sink.
func (s *batchStream) changes(after uint64) (last uint64, ok bool) {
	s.pause()
	b, ok := s.api.batchAfter(after)
	if !ok || b.last == after {
		return after, ok
	}
	s.write(b.line)
	if b.last == s.api.o.Ledger.Revision() {
		s.tellAll = time.Now()
	}
	return b.last, true
}

// pause waits until it is time to tell the next changes.
func (s *batchStream) pause() {
	wait := batchPause - time.Since(s.tellAll)
	if wait <= 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-s.gone():
	}
}

// send implements sink.
func (s *batchStream) send(e *reserver.Event) {
	b := reserver.WatchBatch{
		Instance: e.Instance, Revision: e.Revision, Snapshot: e.Snapshot, CaughtUp: e.Bookmark != nil,
		Refusal: e.Refusal,
	}
	if b.CaughtUp {
		b.Time = e.Time
	}
	s.add(&b)
}

func (s *batchStream) add(b *reserver.WatchBatch) {
	if s.ctx.Err() == nil && writeBatch(&s.buf, b) != nil {
		s.fail() // what was written of it is no line
		s.buf.Reset()
	}
}

// flush implements sink.
func (s *batchStream) flush() {
	s.write(s.buf.Bytes())
	s.buf.Reset()
}

// expired implements watchSink.
func (s *batchStream) expired(last uint64) {
	s.add(&reserver.WatchBatch{Instance: s.api.instance, Revision: last, Expired: true})
	s.flush()
}
