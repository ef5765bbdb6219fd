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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/util/cert"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

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

// TestTunnel sends requests through a forwarded port.
func TestTunnel(t *testing.T) {
	r := newRig(t)
	r.routes["/v1/nodes"] = reserver.NodesAnswer{Revision: 42}
	handler := &forwardingAPI{t: t, backend: r.server.Listener.Addr().String()}
	api := httptest.NewServer(handler)
	defer api.Close()
	r.kube = kubefake.NewClientset(service(), serverPod("b"))
	env := environmentOf(api.URL)
	env.cluster = r.cluster
	for range 3 {
		answer, err := get[reserver.NodesAnswer](t.Context(), env, "/v1/nodes", nil)
		require.NoError(t, err)
		assert.EqualValues(t, 42, answer.Revision)
	}
	assert.EqualValues(t, 1, handler.upgraded.Load(), "one tunnel for all requests")
	env.close()
	_, err := get[reserver.NodesAnswer](t.Context(), env, "/v1/nodes", nil)
	assert.Equal(t, exitUnreachable, exitCode(err))
	assert.ErrorContains(t, err, "does not answer through the forwarded port")
	assert.ErrorContains(t, err, "connection refused", "the port is closed")
}

// A command forwards a port where it has no --ledger-url. Through that, too, the server is known by the name of its
// Service.
func TestTunnelToTLS(t *testing.T) {
	r := newRig(t)
	r.routes["/v1/nodes?limit=1000"] = reserver.NodesAnswer{Nodes: nodeAccounts()}
	r.kube = kubefake.NewClientset(service(func(s *corev1.Service) { s.Spec.Ports[0].Name = "https" }), serverPod("b"))
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

// service is the one of manifests/base, changed by edit.
func service(edit ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "globalreserve"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "globalreserve"},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}
	for _, e := range edit {
		e(s)
	}
	return s
}

// serverPod is a pod of it.
func serverPod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name, Labels: map[string]string{"app": "globalreserve"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "other", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9}}},
			{Name: "globalreserve", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 23456}}},
		}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: "True"},
				{Type: corev1.PodReady, Status: "True"},
			},
		},
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

func notReady(p *corev1.Pod) { p.Status.Conditions[1].Status = "False" }
func pending(p *corev1.Pod)  { p.Status.Phase = corev1.PodPending }
func deleting(p *corev1.Pod) {
	t := ago(0)
	p.DeletionTimestamp, p.Finalizers = &t, []string{"x"}
}
func of(other string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels["app"] = other } }

// TestChoosePod chooses among fake pods. That a port is really forwarded to the chosen one needs a kubelet, which the
// control plane of the end-to-end tests does not have; TestTunnel forwards one through a server that speaks the
// protocol.
func TestChoosePod(t *testing.T) {
	https := func(s *corev1.Service) { s.Spec.Ports[0].Name = "https" }
	byNumber := func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(8443) }
	noTarget := func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.IntOrString{} }
	noSelector := func(s *corev1.Service) { s.Spec.Selector = nil }
	noPorts := func(s *corev1.Service) { s.Spec.Ports = nil }
	twoPorts := func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: "tls", Port: 443, TargetPort: intstr.FromInt32(1443),
			AppProtocol: new("HTTPS"),
		})
	}
	ready := podPort{namespace: system, pod: "b", port: 23456, scheme: "http"}
	with := func(change func(*podPort)) podPort {
		p := ready
		change(&p)
		return p
	}
	for name, tt := range map[string]struct {
		objects []runtime.Object
		port    string
		want    podPort
		says    string
		code    int
	}{
		"the ready one": {objects: []runtime.Object{
			service(), serverPod("d"), serverPod("c", deleting), serverPod("a", notReady), serverPod("0", pending),
			serverPod("1", of("other")), serverPod("b"),
		}, want: ready},
		"port by number": {
			objects: []runtime.Object{service(byNumber), serverPod("b")},
			want:    with(func(p *podPort) { p.port = 8443 }),
		},
		"port without a target": {
			objects: []runtime.Object{service(noTarget), serverPod("b")},
			want:    with(func(p *podPort) { p.port = 80 }),
		},
		"TLS by name, and no such port": {
			objects: []runtime.Object{service(https), serverPod("b")},
			want:    with(func(p *podPort) { p.scheme = "https" }),
		},
		"TLS by protocol": {
			objects: []runtime.Object{service(twoPorts), serverPod("b")}, port: "443",
			want: with(func(p *podPort) { p.port, p.scheme = 1443, "https" }),
		},
		"second port by name": {
			objects: []runtime.Object{service(twoPorts), serverPod("b")}, port: "tls",
			want: with(func(p *podPort) { p.port, p.scheme = 1443, "https" }),
		},
		"no Service": {says: "there is no Service globalreserve-system/globalreserve", code: exitUnreachable},
		"no pods": {
			objects: []runtime.Object{service(), serverPod("b", of("other"))}, says: "has no pods",
			code: exitUnreachable,
		},
		"no selector": {objects: []runtime.Object{service(noSelector)}, says: "selects no pods", code: exitUnreachable},
		"no ports": {
			objects: []runtime.Object{service(noPorts), serverPod("b")}, says: "has no ports",
			code: exitUnreachable,
		},
		"no such port": {
			objects: []runtime.Object{service(twoPorts), serverPod("b")}, port: "81",
			says: `has no port "81": it has http 80, tls 443`, code: exitUsage,
		},
		"no ready pod": {objects: []runtime.Object{
			service(), serverPod("b", notReady), serverPod("a", pending),
			serverPod("c", deleting),
		}, says: "a is pending, b is not ready, c is being deleted", code: exitUnreachable},
		"no port of name": {
			objects: []runtime.Object{service(), serverPod("b",
				func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] })}, says: `has no port named "http"`,
			code: exitUnreachable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			kube := kubefake.NewClientset(tt.objects...)
			got, err := choosePod(t.Context(), kube, serviceRef{
				types.NamespacedName{Namespace: system, Name: "globalreserve"},
				tt.port,
			})
			if tt.says == "" {
				require.NoError(t, err)
				assert.Equal(t, tt.want, got)
				return
			}
			require.ErrorContains(t, err, tt.says)
			assert.Equal(t, tt.code, exitCode(err))
		})
	}
}
