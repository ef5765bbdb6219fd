package decide

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// maxPosts is how many Bindings are under way at the API server at a time, and leastPosts how many while it is slow.
	// The API server carries out a few at once. More of them only make each one slower, until the time for each is
	// over before it is carried out. maxPosts is less than the 100 requests that it takes over one connection.
	maxPosts   = 64
	leastPosts = 4
	// slowFor is how long further slow answers are ignored after a slow answer.
	slowFor = time.Second
)

var errNoTurn = errors.New("too many other binds are under way at the API server")

// turns bound the Bindings under way: half as many after answers that came too late or said that there are too many
// requests, and one more again for each round of good answers.
type turns struct {
	places chan struct{}

	mu     sync.Mutex // guards the rest
	limit  int
	empty  int // places taken by nobody, so that limit are left
	good   int // answers since the limit changed
	slowed time.Time
}

func newTurns() *turns { return &turns{places: make(chan struct{}, maxPosts), limit: maxPosts} }

// take waits for a turn. It reports false where ctx ended first.
func (t *turns) take(ctx context.Context) bool {
	select {
	case t.places <- struct{}{}:
		return true
	default:
	}
	select {
	case t.places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// release ends a turn. slow says that the answer came too late, or was that there are too many requests.
func (t *turns) release(slow bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch now := time.Now(); {
	case slow && now.Sub(t.slowed) >= slowFor:
		t.slowed, t.limit, t.good = now, max(t.limit/2, leastPosts), 0
	case !slow:
		t.good++
	}
	if t.good >= t.limit && t.limit < maxPosts {
		t.limit, t.good = t.limit+1, 0
	}
	if t.empty < maxPosts-t.limit {
		t.empty++
		return
	}
	<-t.places
	if t.empty > maxPosts-t.limit {
		t.empty--
		<-t.places
	}
}
