package kubectl

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// forwardingAPI is an API server that forwards ports, as one does with a kubelet behind it: by SPDY,
// to backend. It knows no websockets, so that the fallback is what is tested.
type forwardingAPI struct {
	t        *testing.T
	backend  string
	asked    atomic.Int32
	upgraded atomic.Int32
}

func (a *forwardingAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	assert.Equal(a.t, "/api/v1/namespaces/globalreserve-system/pods/b/portforward", r.URL.Path)
	a.asked.Add(1)
	if r.Method == http.MethodGet { // a websocket
		http.Error(w, "not here", http.StatusForbidden)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); !assert.NoError(a.t, err) {
		return
	}
	a.upgraded.Add(1)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, a.stream)
	if connection != nil {
		<-connection.CloseChan()
	}
}

// stream copies a data stream to and from the backend; error streams end without a word.
func (a *forwardingAPI) stream(stream httpstream.Stream, replied <-chan struct{}) error {
	go func() {
		<-replied
		if stream.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
			return
		}
		assert.Equal(a.t, "23456", stream.Headers().Get(corev1.PortHeader))
		backend, err := net.Dial("tcp", a.backend)
		if !assert.NoError(a.t, err) {
			return
		}
		go func() {
			_, _ = io.Copy(backend, stream) // ends with the stream
			backend.Close()
		}()
		_, _ = io.Copy(stream, backend) // ends with the connection
		stream.Close()
	}()
	return nil
}

func environmentOf(address string) *environment {
	env := newEnvironment(genericiooptions.NewTestIOStreamsDiscard())
	env.config.APIServer = &address
	return env
}

var somePort = podPort{namespace: "globalreserve-system", pod: "b", port: 23456, scheme: "http"}

// TestTunnel sends requests through a forwarded port.
func TestTunnel(t *testing.T) {
	r := newRig(t)
	r.routes["/v1/nodes"] = reserver.NodesAnswer{Revision: 42}
	handler := &forwardingAPI{t: t, backend: r.server.Listener.Addr().String()}
	api := httptest.NewServer(handler)
	defer api.Close()
	opened, err := environmentOf(api.URL).forward(t.Context(), somePort)
	require.NoError(t, err)
	s := &server{url: opened.url, client: &http.Client{}, timeout: defaultTimeout, tunnel: opened}
	for range 3 {
		var answer reserver.NodesAnswer
		require.NoError(t, s.get(t.Context(), "/v1/nodes", nil, &answer))
		assert.EqualValues(t, 42, answer.Revision)
	}
	assert.EqualValues(t, 1, handler.upgraded.Load(), "one tunnel for all requests")
	s.Close()
	_, err = net.Dial("tcp", opened.url[len("http://"):])
	require.Error(t, err, "the port is closed")
	err = s.get(t.Context(), "/v1/nodes", nil, new(reserver.NodesAnswer))
	assert.Equal(t, ExitUnreachable, exitCode(err))
	assert.ErrorContains(t, err, "does not answer through the forwarded port")
}

func TestTunnelRefused(t *testing.T) {
	newRig(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `pods "b" is forbidden`, http.StatusForbidden)
	}))
	defer api.Close()
	_, err := environmentOf(api.URL).forward(t.Context(), somePort)
	require.ErrorContains(t, err, "cannot forward a port to pod globalreserve-system/b")
	assert.ErrorContains(t, err, `pods "b" is forbidden`)
	assert.Equal(t, ExitUnreachable, exitCode(err))
}
