package fakekube

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// transport is how one client reaches the server. Requests and answers are those of HTTP, without a network.
type transport struct {
	server *Server
	user   string
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	asker := &user.DefaultInfo{Name: t.user, Groups: []string{user.AllAuthenticated}}
	asked := r.Clone(request.WithUser(ctx, asker))
	asked.RequestURI, asked.Proto, asked.ProtoMajor, asked.ProtoMinor = r.URL.RequestURI(), "HTTP/2.0", 2, 0
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	answer := newAnswer(cancel)
	go func() {
		defer cancel()
		defer answer.end()
		t.server.handler.ServeHTTP(answer, asked)
		_ = asked.Body.Close() // it has been read
	}()
	select {
	case <-answer.begun:
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	if answer.status == 0 {
		return nil, errAborted
	}
	return &http.Response{
		Status: http.StatusText(answer.status), StatusCode: answer.status, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: answer.sent, Body: answer, ContentLength: -1, Request: r,
	}, nil
}

// answer is what a server writes and the client reads. The network between them has no bounds.
type answer struct {
	cancel context.CancelFunc // of the request
	header http.Header        // the server's, until it begins to answer
	begun  chan struct{}      // closed then
	sent   http.Header        // to be read after begun, as status is
	status int

	mu     sync.Mutex // guards what follows
	more   *sync.Cond
	buffer bytes.Buffer
	err    error // why there is no more
}

func newAnswer(cancel context.CancelFunc) *answer {
	a := &answer{cancel: cancel, header: http.Header{}, begun: make(chan struct{})}
	a.more = sync.NewCond(&a.mu)
	return a
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	select {
	case <-a.begun:
	default:
		a.status, a.sent = status, a.header.Clone()
		close(a.begun)
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return 0, a.err
	}
	a.more.Signal()
	return a.buffer.Write(p)
}

// Flush implements http.Flusher.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// CloseNotify implements http.CloseNotifier, without which kube-apiserver takes no writer for one that can be flushed.
// It waits for the request's context.
func (a *answer) CloseNotify() <-chan bool { return nil }

var errAborted = errors.New("the server has reset the stream")

// end is deferred by who calls the server's handler. As net/http does it ends the stream of a handler that aborts.
func (a *answer) end() {
	switch thrown := recover(); thrown {
	case nil:
		a.WriteHeader(http.StatusOK)
		a.stop(io.EOF)
	case http.ErrAbortHandler:
		a.WriteHeader(0)
		a.stop(errAborted)
	default:
		panic(thrown)
	}
}

func (a *answer) stop(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = err
	}
	a.more.Broadcast()
}

// Read implements io.Reader for the client.
func (a *answer) Read(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.buffer.Len() == 0 {
		if a.err != nil {
			return 0, a.err
		}
		a.more.Wait()
	}
	return a.buffer.Read(p)
}

var errGone = errors.New("the client has gone")

// Close implements io.Closer for the client.
func (a *answer) Close() error {
	a.cancel()
	a.stop(errGone)
	return nil
}
