package app

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimeutil "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/election"
	reservationsfake "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
	"github.com/globalreserve/globalreserve/test/leaks"
)

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func testNode(name string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourcePods: resource.MustParse("10"),
	}}}
}

func testClients(core kubernetes.Interface) Clients {
	known := metadatafake.NewTestScheme()
	runtimeutil.Must(metav1.AddMetaToScheme(known))
	return Clients{
		Core: core, Reservations: reservationsfake.NewSimpleClientset(), Metadata: metadatafake.NewSimpleMetadataClient(known),
		Objects: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()),
	}
}

// fence has a fake API server refuse what an earlier server has sent, so that a start need not wait for it.
func fence(t *testing.T, client *fake.Clientset) {
	t.Helper()
	installed := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: election.FenceName}}
	_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), installed, metav1.CreateOptions{})
	require.NoError(t, err)
	client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		_, ok := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		return ok, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Binding"}, "probe", field.ErrorList{field.Forbidden(nil, election.FenceName)})
	})
}

func testOptions() Options {
	o := DefaultOptions()
	o.Port, o.Peers.Address = 0, "127.0.0.1:0"
	return o
}

// startApp runs a server on a fake API with a fence until the test ends.
func startApp(t *testing.T, o Options, client *fake.Clientset) (*App, *logBuffer) {
	t.Helper()
	fence(t, client)
	return startUnfenced(t, o, client)
}

func startUnfenced(t *testing.T, o Options, client *fake.Clientset) (*App, *logBuffer) {
	t.Helper()
	log := &logBuffer{}
	a, err := New(o, testClients(client), log)
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, a.Stop(context.Background())) })
	return a, log
}

func get(t *testing.T, a *App, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + a.Addr() + path)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	return read(t, response)
}

func post(t *testing.T, a *App, path, body string) (int, string) {
	t.Helper()
	response, err := http.Post("http://"+a.Addr()+path, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	return read(t, response)
}

func read(t *testing.T, response *http.Response) (int, string) {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// Probes and metrics have a port where nothing is decided, and plain HTTP need not be served.
func TestProbesHaveAPortOfTheirOwn(t *testing.T) {
	o := secureOptions(newAuthority(t))
	o.BindAddress, o.HealthAddress = "", "127.0.0.1:0"
	a, _ := startApp(t, o, fake.NewClientset(testNode("a")))
	require.NoError(t, a.WaitReady(t.Context()))
	assert.Empty(t, a.Addr())
	for path, want := range map[string]int{
		"/livez": http.StatusOK, "/healthz": http.StatusOK, "/version": http.StatusOK, "/metrics": http.StatusOK,
		"/v1/nodes": http.StatusNotFound, "/bind": http.StatusNotFound, "/admission": http.StatusNotFound, "/openapi.yaml": http.StatusNotFound,
	} {
		response, err := http.Get("http://" + a.HealthAddr() + path)
		require.NoError(t, err)
		code, _ := read(t, response)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, want, code, path)
	}
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + a.HealthAddr() + "/readyz")
		require.NoError(t, err)
		return response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, 10*time.Second, 20*time.Millisecond)
}

func TestServerServes(t *testing.T) {
	ignored := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		leaks.None(t, ignored)
	})
	a, log := startApp(t, testOptions(), fake.NewClientset(testNode("a")))
	require.NoError(t, a.WaitReady(t.Context()))

	for _, path := range []string{"/livez", "/readyz", "/healthz"} {
		code, body := get(t, a, path)
		assert.Equal(t, http.StatusOK, code, path)
		assert.Equal(t, "ok\n", body)
		response, err := http.Head("http://" + a.Addr() + path)
		require.NoError(t, err)
		code, _ = read(t, response)
		assert.NoError(t, response.Body.Close())
		assert.Equal(t, http.StatusOK, code, "HEAD %s", path)
	}
	_, body := get(t, a, "/readyz?verbose")
	assert.Equal(t, "ok\nfence: up\n", body)
	code, body := get(t, a, "/version")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "goVersion")
	_, body = get(t, a, "/metrics")
	assert.Contains(t, body, "globalreserve_nodes 1")
	assert.Contains(t, body, "globalreserve_leader 1")
	assert.Contains(t, body, "globalreserve_fence_up 1")
	assert.Contains(t, body, "globalreserve_slots_in_memory 0")

	code, body = get(t, a, "/no/such/path")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Contains(t, body, `"Error"`)
	code, body = get(t, a, "/filter")
	assert.Equal(t, http.StatusMethodNotAllowed, code)
	assert.Contains(t, body, `"Error"`)
	assert.Contains(t, log.String(), "serving")
}

// A server killed with a bind under way leaves a binding that may be written
// after the next one has read all pods: until it cannot be any more, nobody may
// be granted that capacity.
func TestServerWaitsForBindsBeforeIt(t *testing.T) {
	a, log := startUnfenced(t, testOptions(), fake.NewClientset(testNode("a")))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "waits before it decides") }, time.Minute, 5*time.Millisecond)
	code, body := get(t, a, "/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, "is taking over")
	_, body = post(t, a, "/bind", "{}")
	assert.Contains(t, body, "is taking over")
	_, body = get(t, a, "/readyz?verbose")
	assert.Contains(t, body, "fence: ")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, a.WaitReady(ctx), context.DeadlineExceeded)
}

func TestServerStartErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	badPolicy := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(badPolicy, []byte("kind: Nonsense"), 0o600))
	cases := map[string]struct {
		change func(*Options)
		want   string
	}{
		"port taken":        {change: func(o *Options) { o.Port = taken.Addr().(*net.TCPAddr).Port }, want: "choose another with --port"},
		"policy file bad":   {change: func(o *Options) { o.PolicyFile = badPolicy }, want: "policy file"},
		"policy file gone":  {change: func(o *Options) { o.PolicyFile = badPolicy + ".gone" }, want: "policy file"},
		"kubeconfig absent": {change: func(o *Options) { o.Kubeconfig = "/does/not/exist" }, want: "--kubeconfig /does/not/exist"},
		"bad option":        {change: func(o *Options) { o.Port = -1 }, want: "--port -1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := testOptions()
			tc.change(&o)
			if o.Kubeconfig != "" || o.Validate() != nil {
				require.ErrorContains(t, Run(t.Context(), o, io.Discard), tc.want)
				return
			}
			a, err := New(o, testClients(fake.NewClientset()), io.Discard)
			if err == nil {
				err = a.Start(t.Context())
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}
