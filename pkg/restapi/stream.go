package restapi

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
)

// noID is for events a client must not resume after.
const noID = 0

// stream writes server-sent events. After the first error, which is that the
// client has gone or is too slow, it writes nothing more.
type stream struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	instance string // starts the ids of events
	timeout  time.Duration
	buf      bytes.Buffer
	err      error
}

func newStream(w http.ResponseWriter, instance string, timeout time.Duration) *stream {
	return &stream{w: w, control: http.NewResponseController(w), instance: instance, timeout: timeout}
}

// begin sends the header.
func (s *stream) begin() {
	header := s.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // or nginx holds events back
	s.w.WriteHeader(http.StatusOK)
}

// eventID names a revision so that no other run of a server takes it for one of
// its own.
func eventID(instance string, revision uint64) string {
	return instance + "-" + strconv.FormatUint(revision, 10)
}

// event adds an event whose data is v as one line of JSON.
func (s *stream) event(name string, id uint64, v any) {
	if s.err != nil {
		return
	}
	s.buf.WriteString("event: ")
	s.buf.WriteString(name)
	if id != noID {
		s.buf.WriteString("\nid: ")
		s.buf.WriteString(eventID(s.instance, id))
	}
	s.buf.WriteString("\ndata: ")
	if s.err = json.MarshalWrite(&s.buf, v); s.err != nil {
		return
	}
	s.buf.WriteString("\n\n")
}

// comment adds a line that clients ignore.
func (s *stream) comment(text string) {
	s.buf.WriteString(": ")
	s.buf.WriteString(text)
	s.buf.WriteString("\n\n")
}

// flush sends what was added. A client that does not take it in time is cut off:
// it may resume, or start anew, when it is faster.
func (s *stream) flush() {
	if s.err != nil {
		return
	}
	// The server's own limit on writing an answer is for short ones: each flush
	// gets its own. A writer that knows no deadlines, as in tests, has none to set.
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout))
	if _, s.err = s.w.Write(s.buf.Bytes()); s.err == nil {
		s.err = s.control.Flush()
	}
	// HTTP/2 ends a stream whose deadline passes even while nothing is written.
	_ = s.control.SetWriteDeadline(time.Time{})
	s.buf.Reset()
}
