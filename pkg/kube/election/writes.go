package election

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// write is how long one write of a leader may last: it begins while the Lease is surely held, which is a Retry less
// than the Lease lasts, and has to be over when another server may have it.
func (t Times) write() time.Duration { return t.Retry - t.Retry/4 }

// ErrNotSent is why a write is not sent: another server may be deciding.
var ErrNotSent = errors.New("it was not sent, because another server may be deciding by now")

// Writes are what a leader sends to the API server. The fence refuses writes that arrive late. A write may be past
// the fence and not carried out yet, because a webhook or etcd is slow. Such writes are bounded in time: the API server
// abandons each after the limit, and the next leader begins no sooner. Writes is safe for concurrent use.
type Writes struct {
	limit time.Duration
	may   func() bool

	mu   sync.Mutex // guards what follows
	sent int
	// open are the writes that have no answer yet, and until when each may be carried out.
	open map[int]time.Time
	// doubtful is until when a write may be carried out whose answer did not report what became of it.
	doubtful time.Time
}

// NewWrites returns Writes that last for up to a limit, and are sent while may returns true.
func NewWrites(limit time.Duration, may func() bool) *Writes {
	return &Writes{limit: limit, may: may, open: map[int]time.Time{}}
}

// Do calls send, which sends no more than one request, and passes the deadline of its ctx to the API server.
func (w *Writes) Do(ctx context.Context, send func(ctx context.Context) error) error {
	write := w.begin()
	if !w.may() { // after it has begun: settle either waits for it, or it is not sent
		w.end(write, true)
		return ErrNotSent
	}
	ctx, cancel := context.WithTimeout(ctx, w.limit)
	defer cancel()
	err := send(ctx)
	w.end(write, tells(err))
	return err
}

func (w *Writes) begin() (write int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent++
	w.open[w.sent] = time.Now().Add(w.limit)
	return w.sent
}

func (w *Writes) end(write int, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if until := w.open[write]; !known && until.After(w.doubtful) {
		w.doubtful = until
	}
	delete(w.open, write)
}

// settle waits until no write of unknown fate can still be carried out. No write may begin any more when it is called.
func (w *Writes) settle(ctx context.Context) error {
	w.mu.Lock()
	left := max(time.Until(w.doubtful), 0)
	for _, until := range w.open {
		left = max(left, time.Until(until))
	}
	w.mu.Unlock()
	if left == 0 {
		return nil
	}
	return sleep(ctx, left)
}

// tells reports whether an answer says what became of a write: it was carried out, or was refused before it was begun.
// A 409 does not: the API server also answers 409 where its storage did not report that.
func tells(err error) bool {
	var status apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return true
	case !errors.As(err, &status):
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusConflict
}
