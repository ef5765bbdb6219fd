package rest

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// batchPause is how long nothing is sent to a watcher after a batch that had all there was. To wake a process for a
// change costs more than all else, so the changes of that time are sent together.
const batchPause = 10 * time.Millisecond

// stream sends a watcher lines of reserver.WatchBatch. After the first error, which is that the client has gone or is
// too slow, nothing more is sent.
type stream struct {
	api     *API
	w       http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // ends when the client has gone, or after an error
	fail    context.CancelFunc
	buf     bytes.Buffer
	events  []ledger.Event // scratch
	sentAll time.Time      // when the last batch was sent, if that had all there was
}

// newStream makes a stream for the time of a request, or until the server stops; fail is to be called at its end.
func (a *API) newStream(ctx context.Context, w http.ResponseWriter) *stream {
	ctx, fail := a.untilStopped(ctx)
	return &stream{api: a, w: w, control: http.NewResponseController(w), ctx: ctx, fail: fail}
}

// untilStopped returns a context that ends with the server, too.
func (a *API) untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(a.o.Serving, cancel)
	return ctx, func() { detach(); cancel() }
}

// begin sends the header.
func (s *stream) begin() {
	header := s.w.Header()
	header.Set("Content-Type", reserver.BatchMediaType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // or nginx holds lines back
	s.w.WriteHeader(http.StatusOK)
}

// send sends one line.
func (s *stream) send(b *reserver.WatchBatch) {
	s.buf.Reset()
	if json.MarshalWrite(&s.buf, b) != nil {
		s.fail() // what was written of it is no line
	}
	s.buf.WriteByte('\n')
	s.write(s.buf.Bytes())
}

// changes sends what came after a revision, as far as it goes at once, and returns up to which revision that is. ok is
// false where the journal does not have that any more.
func (s *stream) changes(after uint64) (last uint64, ok bool) {
	informer.Pause(s.ctx, batchPause-time.Since(s.sentAll))
	if s.events, ok = s.api.eventsSince(s.events, after); len(s.events) == 0 {
		return after, ok
	}
	last = s.events[len(s.events)-1].Revision
	s.send(&reserver.WatchBatch{Instance: s.api.instance, Revision: last, Changes: listOf(s.events, s.api.change)})
	if last == s.api.o.Ledger.Revision() {
		s.sentAll = time.Now()
	}
	return last, true
}

// write sends bytes at once. A client that does not take them in time is cut off:
// it may resume, or start anew, when it is faster.
func (s *stream) write(content []byte) {
	if s.ctx.Err() != nil {
		return
	}
	// The server's own limit on writing an answer is for short ones: each write
	// gets its own. A writer that knows no deadlines, as in tests, has none to set.
	_ = s.control.SetWriteDeadline(time.Now().Add(s.api.watchWrite))
	_, err := s.w.Write(content)
	if err == nil {
		err = s.control.Flush()
	}
	if err != nil {
		s.fail()
	}
	// HTTP/2 ends a stream whose deadline passes even while nothing is written.
	_ = s.control.SetWriteDeadline(time.Time{})
}
