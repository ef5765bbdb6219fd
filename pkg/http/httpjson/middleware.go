package httpjson

import (
	"cmp"
	"errors"
	"net/http"
	"runtime/debug"
	"time"
)

// Handle makes a handler of serve. It answers an error of serve with WriteError, and calls observe for
// every request: with verb, the HTTP status, and the time from the first line of serve to its last. A
// request that ends in a panic before an answer was begun counts as 500.
func Handle(
	verb string, observe func(verb string, code int, took time.Duration),
	serve func(http.ResponseWriter, *http.Request) error,
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w}
		end := http.StatusInternalServerError
		defer func() { observe(verb, cmp.Or(rec.code, end), time.Since(start)) }()
		if err := serve(rec, r); err != nil {
			WriteError(rec, err)
		}
		end = http.StatusOK
	})
}

// Recover answers 500 in JSON when next panics and hands the panic's value and stack to report, so that one bad request
// never ends the server. Where the answer was already begun the connection is cut instead, or the client would take
// half an answer for a whole one. http.ErrAbortHandler is passed on, as net/http asks.
func Recover(report func(r *http.Request, value any, stack []byte), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w}
		defer func() {
			value := recover()
			if value == nil {
				return
			}
			if err, ok := value.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(value)
			}
			report(r, value, debug.Stack())
			if rec.code != 0 {
				panic(http.ErrAbortHandler)
			}
			WriteError(rec, errors.New("the server failed on this request: its log has the stack, please report it"))
		}()
		next.ServeHTTP(rec, r)
	})
}

// recorder remembers the status of an answer. Handlers that stream use http.ResponseController,
// which reaches the real writer through Unwrap.
type recorder struct {
	http.ResponseWriter
	code int // 0 until the answer has begun
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// begin keeps the first status.
func (r *recorder) begin(code int) { r.code = cmp.Or(r.code, code) }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(code int) {
	r.begin(code)
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) {
	r.begin(http.StatusOK)
	return r.ResponseWriter.Write(p)
}

// FlushError sends what was written so far, which begins the answer too.
func (r *recorder) FlushError() error {
	r.begin(http.StatusOK)
	return http.NewResponseController(r.ResponseWriter).Flush()
}
