package rest

import (
	"bytes"
	"context"
	"net/http"
	"time"

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
	sentAll time.Time // when the last batch was sent, if that had all there was
}

// newStream makes a stream for the time of a request; fail is to be called at its end.
func (a *API) newStream(ctx context.Context, w http.ResponseWriter) *stream {
	ctx, fail := context.WithCancel(ctx)
	return &stream{api: a, w: w, control: http.NewResponseController(w), ctx: ctx, fail: fail}
}

// open reports whether the client is there, and the server goes on.
func (s *stream) open() bool {
	select {
	case <-s.ctx.Done():
		return false
	case <-s.api.o.Done:
		return false
	default:
		return true
	}
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
	if writeBatch(&s.buf, b) != nil {
		s.fail() // what was written of it is no line
	}
	s.write(s.buf.Bytes())
}

// changes sends what came after a revision, as far as it goes at once, and returns up to which revision that is. ok is
// false where the journal does not have that any more.
func (s *stream) changes(after uint64) (last uint64, ok bool) {
	s.pause()
	b, ok := s.api.batchAfter(after)
	if !ok || b.last == after {
		return after, ok
	}
	s.write(b.line)
	if b.last == s.api.o.Ledger.Revision() {
		s.sentAll = time.Now()
	}
	return b.last, true
}

// pause waits until it is time to send the next changes.
func (s *stream) pause() {
	wait := batchPause - time.Since(s.sentAll)
	if wait <= 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-s.ctx.Done():
	case <-s.api.o.Done:
	}
}

// write sends bytes at once. A client that does not take them in time is cut off:
// it may resume, or start anew, when it is faster.
func (s *stream) write(content []byte) {
	if s.ctx.Err() != nil {
		return
	}
	// The server's own limit on writing an answer is for short ones: each write
	// gets its own. A writer that knows no deadlines, as in tests, has none to set.
	_ = s.control.SetWriteDeadline(time.Now().Add(s.api.o.Limits.WriteTimeout))
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
