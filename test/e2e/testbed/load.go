package testbed

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// deedTimeout is how long one deed may take: the server may be gone.
const deedTimeout = 5 * time.Second

// Deed is something that a user or a scheduler does. It may fail while the server is gone.
type Deed func(context.Context) error

// Load is what users and schedulers do, all at once, to a server that may be killed at any moment.
type Load struct {
	// Next chooses what one of them does next.
	Next func() Deed

	mu   sync.Mutex // guards done
	done map[string]int
}

// Run has so many workers go on until the function it returns is called, at the latest at the test's end.
func (l *Load) Run(t testing.TB, workers int) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for ctx.Err() == nil {
				if do(ctx, l.Next()) != nil && ctx.Err() == nil {
					<-time.After(10 * time.Millisecond) // the server is gone for a moment
				}
			}
		})
	}
	stop = func() {
		cancel()
		group.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func do(ctx context.Context, deed Deed) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deedTimeout)
	defer cancel()
	return deed(ctx)
}

// Did counts a deed that was done.
func (l *Load) Did(what string, err error) error {
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.done == nil {
			l.done = map[string]int{}
		}
		l.done[what]++
	}
	return err
}

// Times returns how often a deed was done.
func (l *Load) Times(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done[what]
}

// AssertDone fails unless each of the deeds was done more than so many times, for which a slow machine may go
// on for a while.
func (l *Load) AssertDone(t testing.TB, times int, deeds ...string) {
	t.Helper()
	assert.EventuallyWithT(t, func(t *assert.CollectT) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, deed := range deeds {
			assert.Greater(t, l.done[deed], times, "%s: too few to prove anything", deed)
		}
	}, Soon, Poll)
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("done: %v", maps.Clone(l.done))
}
