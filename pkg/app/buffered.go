package app

import (
	"bufio"
	"io"
	"net/http"
)

// watchBuffer is how much of a watch is read at once.
const watchBuffer = 64 << 10

// bufferWatches reads the answers to watches in large pieces. client-go reads the length of each object, and then the
// object; over HTTP/2 each of these reads allows the API server to send as much again, by a system call here and some
// work there. While all pods of a cluster come that is a tenth of what it takes.
type bufferWatches struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bufferWatches) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusOK && isWatch(r) {
		response.Body = bufferedBody{bufio.NewReaderSize(response.Body, watchBuffer), response.Body}
	}
	return response, err
}

// WrappedRoundTripper implements net.RoundTripperWrapper of k8s.io/apimachinery.
func (b bufferWatches) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

// isWatch reports whether a request begins a watch.
func isWatch(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

type bufferedBody struct {
	io.Reader
	io.Closer
}
