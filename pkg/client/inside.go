package client

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"net/http/httptrace"
)

// inside carries requests to a handler in this process, in the goroutine of who asks.
type inside struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (i inside) RoundTrip(r *http.Request) (*http.Response, error) {
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{}) // from here on something may have been done
	}
	answer := &written{header: http.Header{}}
	i.handler.ServeHTTP(answer, r)
	if err := r.Context().Err(); err != nil && answer.status >= http.StatusInternalServerError {
		return nil, err // as over a connection: an equal request may be under way
	}
	return &http.Response{
		StatusCode: cmp.Or(answer.status, http.StatusOK), Header: answer.header, Body: io.NopCloser(answer),
	}, nil
}

// CloseIdleConnections has none to close; client-go asks for it.
func (i inside) CloseIdleConnections() {}

// written is a whole answer. It cannot be flushed, which ends streams.
type written struct {
	bytes.Buffer
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (w *written) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *written) WriteHeader(status int) { w.status = cmp.Or(w.status, status) }
