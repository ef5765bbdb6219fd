package rest

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// connection is that to a watcher over HTTP. After the first error, which is that the
// client has gone or is too slow, nothing more is sent.
type connection struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	ctx     context.Context // ends when the client has gone, or after an error
	fail    context.CancelFunc
}

// newConnection makes a connection for the time of a request; fail is to be called at its end.
func newConnection(ctx context.Context, w http.ResponseWriter, timeout time.Duration) *connection {
	ctx, fail := context.WithCancel(ctx)
	return &connection{w: w, control: http.NewResponseController(w), timeout: timeout, ctx: ctx, fail: fail}
}

// gone implements sink.
func (c *connection) gone() <-chan struct{} { return c.ctx.Done() }

// begin sends the header.
func (c *connection) begin(contentType string) {
	header := c.w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // or nginx holds events back
	c.w.WriteHeader(http.StatusOK)
}

// write sends bytes at once. A client that does not take them in time is cut off:
// it may resume, or start anew, when it is faster.
func (c *connection) write(content []byte) {
	if c.ctx.Err() != nil {
		return
	}
	// The server's own limit on writing an answer is for short ones: each write
	// gets its own. A writer that knows no deadlines, as in tests, has none to set.
	_ = c.control.SetWriteDeadline(time.Now().Add(c.timeout))
	_, err := c.w.Write(content) //nolint:gosec // JSON, and a header that says so
	if err == nil {
		err = c.control.Flush()
	}
	if err != nil {
		c.fail()
	}
	// HTTP/2 ends a stream whose deadline passes even while nothing is written.
	_ = c.control.SetWriteDeadline(time.Time{})
}

// stream tells a watcher by server-sent events.
type stream struct {
	*connection
	api    *API
	buf    bytes.Buffer
	events []ledger.Event // of changes, kept for the next time
}

// begin implements watchSink.
func (s *stream) begin() { s.connection.begin("text/event-stream") }

// changes implements sink.
func (s *stream) changes(after uint64) (last uint64, ok bool) {
	s.events, last, ok = s.api.tellChanges(s, s.events, after)
	return last, ok
}

// expired implements watchSink.
func (s *stream) expired(last uint64) {
	s.event("expired", "", &reserver.WatchBookmark{Instance: s.api.instance, Revision: last, Time: s.api.o.Clock.Wall().
		UTC().Truncate(time.Millisecond)})
	s.flush()
}

// send implements sink.
func (s *stream) send(e *reserver.Event) {
	if data := e.Stamped(); data != nil {
		s.event(string(e.Type), e.ID, data)
		return
	}
	s.buf.WriteString(": " + string(e.Type) + "\n\n") // a sign of life is a comment, which clients ignore
}

// event adds an event whose data is v as one line of JSON. A client cannot resume after
// an event without an id.
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

// flush implements sink.
func (s *stream) flush() {
	s.write(s.buf.Bytes())
	s.buf.Reset()
}
