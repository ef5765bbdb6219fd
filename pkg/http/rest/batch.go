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

// keptBatches is how many batches are kept for watchers that come by later. Few will do, as most watchers wait for the
// same change.
const keptBatches = 16

// batches are changes of the ledger in the form that watchers receive, encoded once for all of them.
type batches struct {
	mu     sync.Mutex // guards what follows; held while a batch is encoded: others wait
	kept   [keptBatches]batch
	next   int // where the next batch goes in kept
	events []ledger.Event
	buf    bytes.Buffer
}

// batch is a line with the changes after one revision up to another one. It is never changed.
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
	changes, times := make([]reserver.WatchChange, len(b.events)), make([]time.Time, len(b.events))
	for i := range b.events {
		changes[i], times[i] = a.change(&b.events[i]), a.times.of(b.events[i].Revision)
		if i == 0 || !times[i].Equal(times[i-1]) {
			changes[i].Time = &times[i]
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
