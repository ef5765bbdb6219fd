package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// pieces is the body of an answer that notes what is read of it.
type pieces struct {
	io.Reader
	mu     sync.Mutex // guards asked
	asked  []int      // bytes
	closed bool
}

func (p *pieces) Read(b []byte) (int, error) {
	p.mu.Lock()
	p.asked = append(p.asked, len(b))
	p.mu.Unlock()
	return p.Reader.Read(b)
}

// firstAsked is how much was to be read at first.
func (p *pieces) firstAsked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[0]
}

func (p *pieces) Close() error {
	p.closed = true
	return nil
}

// answers is a RoundTripper with one answer for everything.
type answers struct {
	status int
	body   io.ReadCloser
}

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Body: a.body}, nil
}

// A watch is read in large pieces, and what has come of it is there at once.
func TestBufferWatches(t *testing.T) {
	ask := func(url string, status int, body io.ReadCloser) io.ReadCloser {
		request, err := http.NewRequest(http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		response, err := bufferWatches{answers{status, body}}.RoundTrip(request)
		require.NoError(t, err)
		return response.Body
	}
	comes, sends := io.Pipe()
	source := &pieces{Reader: comes}
	body := ask("http://api/api/v1/pods?watch=true", http.StatusOK, source)
	go func() { _, _ = sends.Write([]byte("abcdef")) }()
	for _, want := range []string{"ab", "cd", "ef"} { // more has not come
		piece := make([]byte, 2)
		_, err := io.ReadFull(body, piece)
		require.NoError(t, err)
		assert.Equal(t, want, string(piece))
	}
	assert.Equal(t, []int{watchBuffer}, source.asked)
	require.NoError(t, body.Close())
	assert.True(t, source.closed)

	for url, status := range map[string]int{
		"http://api/api/v1/pods?limit=1": http.StatusOK,
		"http://api/api/v1/pods?watch=1": http.StatusGone,
	} {
		plain := &pieces{}
		assert.Same(t, plain, ask(url, status, plain), url)
	}
}

// The clients do so.
func TestNewClientsBufferWatches(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}}`)
	}))
	t.Cleanup(server.Close)
	var body *pieces
	config := &rest.Config{Host: server.URL}
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			response, err := inner.RoundTrip(r)
			if err == nil {
				body = &pieces{Reader: response.Body}
				t.Cleanup(func() { _ = response.Body.Close() })
				response.Body = body
			}
			return response, err
		})
	})
	clients, err := NewClients(config)
	require.NoError(t, err)
	w, err := clients.Core.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.NotNil(t, (<-w.ResultChan()).Object)
	w.Stop()
	assert.Equal(t, watchBuffer, body.firstAsked())
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
