package rest

import (
	"context"
	"sort"
	"sync"
	"time"
)

const (
	// notePause is how exact the times of changes are while there is no watcher.
	notePause = 10 * time.Millisecond
	// maxMarks is how many times are kept. They always reach as far back as the ledger's journal.
	maxMarks = 1 << 15
)

// times knows when the ledger reached which revision. The ledger has no clock, so times notes when a change was seen.
type times struct {
	mu    sync.Mutex // guards what follows
	marks []mark     // in order
}

// mark is when a revision was seen first.
type mark struct {
	revision uint64
	at       time.Time
}

// note records that a revision is reached.
func (t *times) note(revision uint64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.marks); n > 0 && t.marks[n-1].revision >= revision {
		return
	}
	if len(t.marks) == 2*maxMarks {
		t.marks = append(t.marks[:0], t.marks[maxMarks:]...)
	}
	t.marks = append(t.marks, mark{revision, now.UTC().Truncate(time.Millisecond)})
}

// of returns when a change was made, as far as that was noted. A revision after it has to be noted.
func (t *times) of(revision uint64) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.marks[sort.Search(len(t.marks), func(i int) bool { return t.marks[i].revision >= revision })].at
}

// Run notes when the ledger changes, until ctx ends.
func (a *API) Run(ctx context.Context) error {
	wake, cancel := a.o.Ledger.Subscribe()
	defer cancel()
	pause := time.NewTicker(notePause)
	defer pause.Stop()
	for {
		a.note()
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// note records that the ledger has come to where it is now.
func (a *API) note() { a.times.note(a.o.Ledger.Revision(), a.o.Clock.Wall()) }
