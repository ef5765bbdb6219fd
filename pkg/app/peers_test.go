package app

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Other servers get an address that leads here.
func TestAdvertised(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	for name, tc := range map[string]struct{ url, podIP, listening, want string }{
		"one address": {listening: "127.0.0.1:7", want: "https://127.0.0.1:7"},
		"of a pod":    {listening: "0.0.0.0:7", podIP: "fd00::1", want: "https://[fd00::1]:7"},
		"of a host":   {listening: "[::]:7", want: "https://" + host + ":7"},
		"said by flags": {
			listening: "0.0.0.0:7", podIP: "10.0.0.1", url: "https://a.example:1/",
			want: "https://a.example:1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_IP", tc.podIP)
			address, err := net.ResolveTCPAddr("tcp", tc.listening)
			require.NoError(t, err)
			got, err := (&PeerOptions{URL: tc.url}).advertised(address)
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}

// What a client may not ask here is not passed on to where it may.
func TestDecides(t *testing.T) {
	for _, path := range []string{
		"/filter", "/prioritize", "/preempt", "/bind", "/reserve", "/unreserve", "/v1/watch",
		"/v1/nodes/a",
	} {
		assert.True(t, decides(path), path)
	}
	for _, path := range []string{
		"/livez", "/readyz", "/healthz", "/metrics", "/version", "/openapi.yaml", "/admission",
		"/", "/nothing",
	} {
		assert.False(t, decides(path), path)
	}
}

// A server that passes requests on is ready; in its own process it decides nothing all the same.
func TestFollowerIsReady(t *testing.T) {
	unreachable, h := "", newHealth()
	h.notLeading, h.unreachable = func() string { return "server a decides" }, func() string { return unreachable }
	assert.Empty(t, h.ready())
	assert.False(t, (&App{health: h}).Deciding())
	unreachable = "no route"
	assert.Equal(t, "server a decides (no route)", h.ready())
	h.stopping.Store(true)
	unreachable = ""
	assert.Contains(t, h.ready(), "stopping")
}

// kube-scheduler reads the Error of an answer with status 200 only. To others 503 would mean that nothing was done.
func TestUnknownOutcome(t *testing.T) {
	for path, want := range map[string]int{
		"/filter": http.StatusOK, "/bind": http.StatusOK,
		"/reserve": http.StatusBadGateway,
	} {
		w := httptest.NewRecorder()
		(&health{}).unknown(w, httptest.NewRequest(http.MethodPost, path, http.NoBody), "who knows")
		assert.Equal(t, want, w.Code, path)
		assert.Contains(t, w.Body.String(), `"Error":"who knows"`)
		assert.NotEmpty(t, w.Header().Get("Retry-After"))
	}
}
