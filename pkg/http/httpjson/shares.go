package httpjson

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

var errBusy = Errorf(http.StatusServiceUnavailable,
	"the server is busy with other requests: try again in a few seconds")

// Shares bounds what all requests have of something at one time, and what those of one caller have. A caller who asks
// for more waits for its own requests, and is not in others' way.
type Shares struct {
	each int64 // of one caller
	wait time.Duration
	all  *semaphore.Weighted
	had  atomic.Int64

	mu      sync.Mutex // guards callers
	callers map[string]*share
}

// share is what one caller may have.
type share struct {
	*semaphore.Weighted
	portions int
}

// portion is what one request has.
type portion struct {
	of     *Shares
	caller string
	own    *share
	size   int64
}

// NewShares returns Shares of size, of which one caller has each at most. A request waits at most wait for its part.
func NewShares(size, each int64, wait time.Duration) *Shares {
	return &Shares{each: each, wait: wait, all: semaphore.NewWeighted(size), callers: map[string]*share{}}
}

type ownKey struct{}

// Own is for requests of the server's own process: they wait for nothing that clients have, and may be of any length.
func Own(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), ownKey{}, true)))
	})
}

func isOwn(ctx context.Context) bool { return ctx.Value(ownKey{}) != nil }

// Had is how much requests have at present.
func (s *Shares) Had() int64 { return s.had.Load() }

// Take waits for size, or all that one caller may have. giveBack is to be called, once or more. The error has the
// status 503.
func (s *Shares) Take(ctx context.Context, caller string, size int64) (giveBack func(), err error) {
	p := s.begin(caller)
	if err := p.grow(ctx, size); err != nil {
		p.giveBack()
		return nil, err
	}
	return p.giveBack, nil
}

// begin returns a portion of nothing.
func (s *Shares) begin(caller string) *portion {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.callers[caller]
	if own == nil {
		own = &share{Weighted: semaphore.NewWeighted(s.each)}
		s.callers[caller] = own
	}
	own.portions++
	return &portion{of: s, caller: caller, own: own}
}

// grow waits until a portion has size, or all that one caller may have.
func (p *portion) grow(ctx context.Context, size int64) error {
	s := p.of
	if isOwn(ctx) {
		return nil
	}
	more, late := max(0, min(size, s.each)-p.size), time.Now().Add(s.wait)
	if !acquire(ctx, p.own.Weighted, more, late) {
		return errBusy
	}
	if !acquire(ctx, s.all, more, late) {
		p.own.Release(more)
		return errBusy
	}
	p.size += more
	s.had.Add(more)
	return nil
}

// acquire reports false where n did not become free in time.
func acquire(ctx context.Context, from *semaphore.Weighted, n int64, late time.Time) bool {
	if from.TryAcquire(n) {
		return true
	}
	ctx, cancel := context.WithDeadline(ctx, late)
	defer cancel()
	return from.Acquire(ctx, n) == nil
}

// giveBack ends a portion. A second time it does nothing.
func (p *portion) giveBack() {
	s := p.of
	if p.own == nil {
		return
	}
	s.had.Add(-p.size)
	s.all.Release(p.size)
	p.own.Release(p.size)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.own.portions--; p.own.portions == 0 {
		delete(s.callers, p.caller)
	}
	p.own = nil
}
