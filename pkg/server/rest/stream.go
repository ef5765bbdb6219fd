package rest

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// stream writes server-sent events. After the first error, which is that the
// client has gone or is too slow, it writes nothing more.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	buf     bytes.Buffer
	ctx     context.Context // ends when the client has gone, or after an error
	fail    context.CancelFunc
}

// newStream makes a stream for the time of a request; fail is to be called at its end.
func newStream(ctx context.Context, w http.ResponseWriter, timeout time.Duration) *stream {
	ctx, fail := context.WithCancel(ctx)
	return &stream{w: w, control: http.NewResponseController(w), timeout: timeout, ctx: ctx, fail: fail}
}

// cutOff ends a stream whose reader keeps what others need. It may come from another goroutine.
func (s *stream) cutOff() {
	s.fail()
	_ = s.control.SetWriteDeadline(time.Unix(1, 0)) // see flush
}

// gone implements sink.
func (s *stream) gone() <-chan struct{} { return s.ctx.Done() }

// begin sends the header.
func (s *stream) begin() {
	header := s.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // or nginx holds events back
	s.w.WriteHeader(http.StatusOK)
}

// send implements sink.
func (s *stream) send(e *reserver.Event) {
	if data := e.Data(); data != nil {
		s.event(string(e.Type), e.ID, data)
		return
	}
	s.buf.WriteString(": " + string(e.Type) + "\n\n") // a sign of life is a comment, which clients ignore
}

// event adds an event whose data is v as one line of JSON. One without an id is
// none to resume after.
func (s *stream) event(name, id string, v any) {
	if s.ctx.Err() != nil {
		return
	}
	s.buf.WriteString("event: ")
	s.buf.WriteString(name)
	if id != "" {
		s.buf.WriteString("\nid: ")
		s.buf.WriteString(id)
	}
	s.buf.WriteString("\ndata: ")
	if err := json.MarshalWrite(&s.buf, v); err != nil {
		s.fail() // what was written of it is no event
		s.buf.Reset()
		return
	}
	s.buf.WriteString("\n\n")
}

// flush sends what was added. A client that does not take it in time is cut off:
// it may resume, or start anew, when it is faster.
func (s *stream) flush() {
	if s.ctx.Err() != nil {
		return
	}
	// The server's own limit on writing an answer is for short ones: each flush
	// gets its own. A writer that knows no deadlines, as in tests, has none to set.
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout))
	_, err := s.w.Write(s.buf.Bytes())
	if err == nil {
		err = s.control.Flush()
	}
	if err != nil {
		s.fail()
	}
	// HTTP/2 ends a stream whose deadline passes even while nothing is written.
	_ = s.control.SetWriteDeadline(time.Time{})
	s.buf.Reset()
}
