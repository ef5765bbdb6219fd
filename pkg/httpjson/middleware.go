package httpjson

import (
	"errors"
	"net/http"
	"runtime/debug"
	"time"
)

// Observer is told of every request that was answered. verb is the fixed name given to
// Instrument, code the HTTP status, took the time from the first line of the handler to its last.
type Observer interface {
	ObserveRequest(verb string, code int, took time.Duration)
}

// Instrument reports each request that next handles to obs under the name verb. A request that
// ends in a panic before an answer was begun is reported as 500.
func Instrument(verb string, obs Observer, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w}
		returned := false
		defer func() {
			if rec.code == 0 && !returned {
				rec.code = http.StatusInternalServerError
			}
			obs.ObserveRequest(verb, rec.status(), time.Since(start))
		}()
		next.ServeHTTP(rec, r)
		returned = true
	})
}

// Recover answers 500 in JSON when next panics and hands the panic's value and stack to report, so
// that one bad request never ends the server. Where the answer was already begun the connection is
// cut instead, or the client would take half an answer for a whole one.
// http.ErrAbortHandler is passed on, as net/http asks.
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

// WriteHeader passes the status on and keeps the first one.
func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

// Write begins the answer with 200 when WriteHeader was not called, as net/http does.
func (r *recorder) Write(p []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// FlushError sends what was written so far, which begins the answer too.
func (r *recorder) FlushError() error {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// status is what the client sees once the handler has returned.
func (r *recorder) status() int {
	if r.code == 0 {
		return http.StatusOK
	}
	return r.code
}
