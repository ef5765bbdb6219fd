package kubectl

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/util/cert"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// forwardingAPI is an API server that forwards ports, as one does with a kubelet behind it: by SPDY,
// to backend. It knows no websockets, so that the fallback is what is tested.
type forwardingAPI struct {
	t        *testing.T
	backend  string
	upgraded atomic.Int32
}

func (a *forwardingAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	assert.Equal(a.t, "/api/v1/namespaces/globalreserve-system/pods/b/portforward", r.URL.Path)
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

// Whoever asks all servers finds each pod once, by name, also those that are not ready.
func TestPodsOfTheService(t *testing.T) {
	slice := endpoints([]discoveryv1.EndpointPort{port("http", 1), port("https", 2)},
		map[string]bool{"b": true, "a": true, "c": false})
	for all, want := range map[bool][]podPort{
		false: {{system, "a", 2, "https"}, {system, "b", 2, "https"}},
		true:  {{system, "a", 2, "https"}, {system, "b", 2, "https"}, {system, "c", 2, "https"}},
	} {
		got, err := readyPorts(t.Context(), kubefake.NewClientset(slice), serviceRef{
			NamespacedName: types.NamespacedName{Namespace: system, Name: "globalreserve"},
		}, all)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

// TestTunnel sends requests through a forwarded port.
func TestTunnel(t *testing.T) {
	r := newRig(t)
	r.routes["/v1/nodes"] = reserver.NodesAnswer{Revision: 42}
	handler := &forwardingAPI{t: t, backend: r.server.Listener.Addr().String()}
	api := httptest.NewServer(handler)
	defer api.Close()
	r.kube = kubefake.NewClientset(endpoints([]discoveryv1.EndpointPort{port("http", 23456)}, map[string]bool{"b": true}))
	env := environmentOf(api.URL)
	env.cluster = r.cluster
	for range 3 {
		answer, err := get[reserver.NodesAnswer](t.Context(), env, "/v1/nodes", nil)
		require.NoError(t, err)
		assert.EqualValues(t, 42, answer.Revision)
	}
	assert.EqualValues(t, 1, handler.upgraded.Load(), "one tunnel for all requests")
	server := env.server
	env.close()
	_, err := client.Get[reserver.NodesAnswer](t.Context(), server, "/v1/nodes", nil)
	err = env.explainServerError(err)
	assert.Equal(t, exitUnreachable, exitCode(err))
	assert.ErrorContains(t, err, "does not answer through the forwarded port")
	assert.ErrorContains(t, err, "connection refused", "the port is closed")
}

// A command forwards a port where it has no --ledger-url. Through that, too, the server is known by the name of its
// Service.
func TestTunnelToTLS(t *testing.T) {
	r := newRig(t)
	r.routes["/v1/nodes?limit=1000"] = reserver.NodesAnswer{Nodes: nodeAccounts()}
	r.kube = kubefake.NewClientset(endpoints([]discoveryv1.EndpointPort{port("https", 23456)}, map[string]bool{"b": true}))
	chain, key, err := cert.GenerateSelfSignedCertKey("globalreserve.globalreserve-system.svc", nil, nil)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(chain, key)
	require.NoError(t, err)
	plain := r.server
	r.server = httptest.NewUnstartedServer(plain.Config.Handler)
	r.server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	r.server.StartTLS()
	t.Cleanup(r.server.Close)
	authority := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(authority, chain, 0o600))

	got := r.run("nodes", "-o", "name", "--ledger-certificate-authority", authority)
	assert.Zero(t, got.code, got.err)
	assert.Equal(t, "node/gpu-1\nnode/node-1\nnode/node-2\n", got.out)
	assert.Equal(t, []podPort{{system, "b", 23456, "https"}}, r.forwarded)
	assert.Equal(t, 1, r.closed, "the tunnel is closed")
	got = r.run("nodes")
	assert.Equal(t, exitUnreachable, got.code)
	assert.Contains(t, got.err, "give --ledger-certificate-authority FILE")
	got = r.run("nodes", "--ledger-certificate-authority", authority, "--ledger-tls-server-name", "another.example")
	assert.Equal(t, exitUnreachable, got.code)
	assert.Contains(t, got.err, "give --ledger-tls-server-name")
}

func TestTunnelRefused(t *testing.T) {
	newRig(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `pods "b" is forbidden`, http.StatusForbidden)
	}))
	defer api.Close()
	_, _, err := environmentOf(api.URL).forward(t.Context(), somePort)
	require.ErrorContains(t, err, "cannot forward a port to pod globalreserve-system/b")
	assert.ErrorContains(t, err, `pods "b" is forbidden`)
	assert.Equal(t, exitUnreachable, exitCode(err))
}

const system = "globalreserve-system"

// endpoints are the ports of the Service of manifests/base, and its pods, some of which are ready.
func endpoints(ports []discoveryv1.EndpointPort, pods map[string]bool) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: system, Name: "globalreserve-x", Labels: map[string]string{discoveryv1.LabelServiceName: "globalreserve"},
		},
		Ports: ports,
	}
	for name, ready := range pods {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: name},
		})
	}
	return slice
}

func port(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number}
}

// TestChoosePod chooses among fake pods. That a port is really forwarded to the chosen one needs a kubelet, which the
// control plane of the end-to-end tests does not have; TestTunnel forwards one through a server that speaks the
// protocol.
func TestChoosePod(t *testing.T) {
	http, https := port("http", 23461), port("https", 23456)
	byProtocol := port("web", 443)
	byProtocol.AppProtocol = new("HTTPS")
	both := []discoveryv1.EndpointPort{http, https}
	for name, tt := range map[string]struct {
		slice *discoveryv1.EndpointSlice
		port  string
		want  podPort
		says  string
		code  int
	}{
		"the first that is ready": {
			slice: endpoints(both[:1], map[string]bool{"d": true, "b": true, "a": false}),
			want:  podPort{system, "b", 23461, "http"},
		},
		"TLS before none": {slice: endpoints(both, map[string]bool{"b": true}), want: podPort{system, "b", 23456, "https"}},
		"port by name": {
			slice: endpoints(both, map[string]bool{"b": true}), port: "http", want: podPort{system, "b", 23461, "http"},
		},
		"port by number": {
			slice: endpoints(both, map[string]bool{"b": true}), port: "23461", want: podPort{system, "b", 23461, "http"},
		},
		"TLS by protocol": {
			slice: endpoints([]discoveryv1.EndpointPort{byProtocol}, map[string]bool{"b": true}),
			want:  podPort{system, "b", 443, "https"},
		},
		"no such port": {
			slice: endpoints(both, map[string]bool{"b": true}), port: "81",
			says: `no pod of Service globalreserve-system/globalreserve has a port "81": there is http 23461, https 23456`,
			code: exitUsage,
		},
		"no ready pod": {
			slice: endpoints(both, map[string]bool{"b": false}), code: exitUnreachable,
			says: "there is no ready pod of a Service globalreserve-system/globalreserve",
		},
		"no ready pod with a port": {
			slice: endpoints(both, map[string]bool{"b": false}), port: "https", code: exitUnreachable,
			says: "there is no ready pod of a Service globalreserve-system/globalreserve",
		},
		"no Service": {slice: &discoveryv1.EndpointSlice{}, says: "kubectl apply -k manifests/base", code: exitUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readyPorts(t.Context(), kubefake.NewClientset(tt.slice), serviceRef{
				types.NamespacedName{Namespace: system, Name: "globalreserve"}, tt.port,
			}, false)
			if tt.says == "" {
				require.NoError(t, err)
				assert.Equal(t, tt.want, got[0])
				return
			}
			require.ErrorContains(t, err, tt.says)
			assert.Equal(t, tt.code, exitCode(err))
		})
	}
}
