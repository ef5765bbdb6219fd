package forward

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// writeTimeout is how long the reader of a stream may take to accept what is sent to it.
const writeTimeout = 10 * time.Second

// streamWriter writes an answer. The server's limit on the time of an answer is for short ones: where it streams,
// each write has its own.
type streamWriter struct {
	http.ResponseWriter
	streams bool
}

// Unwrap is for http.ResponseController.
func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *streamWriter) Write(p []byte) (int, error) {
	defer w.limit()()
	return w.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (w *streamWriter) FlushError() error {
	defer w.limit()()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// limit begins a write of a stream, and returns the function that ends it. A writer that knows no deadlines, as in
// tests, has none to set.
func (w *streamWriter) limit() (end func()) {
	if !w.streams {
		return func() {}
	}
	control := http.NewResponseController(w.ResponseWriter)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return func() { _ = control.SetWriteDeadline(time.Time{}) }
}

// endWith returns a stream that ends when ctx does, as if the other side had ended it.
func endWith(ctx context.Context, stream io.ReadCloser) io.ReadCloser {
	detach := context.AfterFunc(ctx, func() { _ = stream.Close() })
	return &boundStream{endingBody{stream, func() { detach() }}, ctx}
}

type boundStream struct {
	endingBody
	ctx context.Context
}

func (s *boundStream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && s.ctx.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// withBody returns a request whose body has been read, with that body to be read again.
func withBody(r *http.Request, body []byte) *http.Request {
	again := r.WithContext(r.Context())
	again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return again
}
