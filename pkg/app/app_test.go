package app

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync/atomic"
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
	"k8s.io/apiserver/pkg/authentication/user"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	reservationsfake "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/leaks"
)

func testNode(name string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourcePods: resource.MustParse("10"),
	}}}
}

func testClients(core kubernetes.Interface) Clients {
	known := metadatafake.NewTestScheme()
	runtimeutil.Must(metav1.AddMetaToScheme(known))
	return Clients{
		Core: core, Whole: core, Reservations: reservationsfake.NewSimpleClientset(),
		Metadata: metadatafake.NewSimpleMetadataClient(known),
		Objects:  dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()),
	}
}

// fence has a fake API server refuse what an earlier server has sent, so that a start need not wait for it.
func fence(t *testing.T, client *fake.Clientset) {
	t.Helper()
	installed := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: election.FenceName},
	}
	_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().
		Create(t.Context(), installed, metav1.CreateOptions{})
	require.NoError(t, err)
	client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		_, ok := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		return ok, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Binding"}, "probe",
			field.ErrorList{field.Forbidden(nil, election.FenceName)})
	})
}

func testOptions() Options {
	o := DefaultOptions()
	o.Port, o.Peers.Address = 0, "127.0.0.1:0"
	return o
}

// startApp runs a server on a fake API with a fence until the test ends, and returns when it is ready.
func startApp(t *testing.T, o Options, client *fake.Clientset) *App {
	t.Helper()
	fence(t, client)
	a := startUnfenced(t, o, client)
	require.NoError(t, a.WaitReady(t.Context()))
	return a
}

func startUnfenced(t *testing.T, o Options, client *fake.Clientset) *App {
	t.Helper()
	return startWith(t, o, testClients(client))
}

func startWith(t *testing.T, o Options, clients Clients) *App {
	t.Helper()
	a, err := New(o, clients, io.Discard)
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, a.Stop(context.Background())) })
	return a
}

func get(t *testing.T, a *App, path string) (int, string) {
	t.Helper()
	return ask(t, http.DefaultClient, http.MethodGet, "http://"+addrOf(a, "HTTP")+path)
}

// ask sends an empty object.
func ask(t *testing.T, client *http.Client, method, url string, changes ...func(*http.Request)) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("{}"))
	require.NoError(t, err)
	for _, change := range changes {
		change(request)
	}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// Probes and metrics have a port where nothing is decided, and plain HTTP need not be served.
func TestProbesHaveAPortOfTheirOwn(t *testing.T) {
	o := secureOptions(newCertificates(t))
	o.BindAddress, o.HealthAddress = "", "127.0.0.1:0"
	a := startApp(t, o, fake.NewClientset(testNode("a")))
	assert.Nil(t, listenerOf(a, "HTTP"))
	for path, want := range map[string]int{
		"/livez": http.StatusOK, "/healthz": http.StatusOK, "/version": http.StatusOK, "/metrics": http.StatusOK,
		"/v1/nodes": http.StatusNotFound, "/bind": http.StatusNotFound, "/admission": http.StatusNotFound,
		"/openapi.yaml": http.StatusNotFound,
	} {
		code, _ := ask(t, http.DefaultClient, http.MethodGet, "http://"+addrOf(a, "HTTP of probes and metrics")+path)
		assert.Equal(t, want, code, path)
	}
	require.Eventually(t, func() bool {
		code, _ := ask(t, http.DefaultClient, http.MethodGet, "http://"+addrOf(a, "HTTP of probes and metrics")+"/readyz")
		return code == http.StatusOK
	}, time.Minute, 20*time.Millisecond)
}

func TestServerServes(t *testing.T) {
	ignored := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		leaks.None(t, ignored)
	})
	a := startApp(t, testOptions(), fake.NewClientset(testNode("a")))

	for _, path := range []string{"/livez", "/readyz", "/healthz"} {
		code, body := get(t, a, path)
		assert.Equal(t, http.StatusOK, code, path)
		assert.Equal(t, "ok\n", body)
		code, _ = ask(t, http.DefaultClient, http.MethodHead, "http://"+addrOf(a, "HTTP")+path)
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
	assert.Nil(t, listenerOf(a, "HTTPS"))
	code, _ = ask(t, http.DefaultClient, http.MethodPost, "http://"+addrOf(a, "HTTP")+"/admission")
	assert.Equal(t, http.StatusNotFound, code, "the webhook is served by TLS alone")
	code, body = get(t, a, "/filter")
	assert.Equal(t, http.StatusMethodNotAllowed, code)
	assert.Contains(t, body, `"Error"`)
}

// Until it has read all pods, a server is alive but not ready, and decides nothing.
func TestServerReadsAllPodsFirst(t *testing.T) {
	client := fake.NewClientset(testNode("a"))
	var asked, readable atomic.Bool
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked.Store(true)
		return !readable.Load(), nil, apierrors.NewInternalError(io.ErrUnexpectedEOF)
	})
	fence(t, client)
	a := startUnfenced(t, testOptions(), client)
	require.Eventually(t, asked.Load, time.Minute, time.Millisecond)
	for path, want := range map[string]int{
		"/livez": http.StatusOK, "/healthz": http.StatusOK, "/metrics": http.StatusOK, "/version": http.StatusOK,
		"/readyz": http.StatusServiceUnavailable,
	} {
		code, body := get(t, a, path)
		assert.Equal(t, want, code, "%s: %s", path, body)
	}
	_, body := ask(t, http.DefaultClient, http.MethodPost, "http://"+addrOf(a, "HTTP")+"/bind")
	assert.Contains(t, body, "is taking over")
	readable.Store(true)
	require.NoError(t, a.WaitReady(t.Context()))
}

// A server killed with a bind under way leaves a binding that may be written
// after the next one has read all pods: until it cannot be any more, nobody may
// be granted that capacity. The webhook answers with an error, too: its failurePolicy decides.
func TestServerWaitsForBindsBeforeIt(t *testing.T) {
	ca := newCertificates(t)
	o := secureOptions(ca)
	o.Secure.AdmissionClients = []string{user.Anonymous}
	o.BindTimeout = 29 * time.Second // it waits for a third of that
	a := startUnfenced(t, o, fake.NewClientset(testNode("a")))
	waits := func() bool {
		code, body := get(t, a, "/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "is taking over")
	}
	require.Eventually(t, waits, time.Minute, 5*time.Millisecond)
	_, body := ask(t, http.DefaultClient, http.MethodPost, "http://"+addrOf(a, "HTTP")+"/bind")
	assert.Contains(t, body, "is taking over")
	code, body := ask(t, ca.client("", nil), http.MethodPost, "https://"+addrOf(a, "HTTPS")+"/admission")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, `"Error"`)
	_, body = get(t, a, "/readyz?verbose")
	assert.Contains(t, body, "fence: ")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, a.WaitReady(ctx), context.DeadlineExceeded)
}

// anyPort is a free one of this host.
var anyPort = port{address: "127.0.0.1:0"}

// listenerOf returns what serves something, nil where nothing does.
func listenerOf(a *App, name string) *httpServer {
	for _, s := range a.listeners {
		if s.name == name {
			return s
		}
	}
	return nil
}

func addrOf(a *App, name string) string { return listenerOf(a, name).listensAt() }

func TestServerStartErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	port := taken.Addr().(*net.TCPAddr).Port
	ca := newCertificates(t)
	ca.serve("other")
	badPolicy := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(badPolicy, []byte("kind: Nonsense"), 0o600))
	cases := map[string]struct {
		change func(*Options)
		want   string
	}{
		"port taken":        {change: func(o *Options) { o.Port = port }, want: "choose another with --port"},
		"TLS's port taken":  {change: func(o *Options) { o.Secure.Port = port }, want: "choose another with --secure-port"},
		"no certificate":    {change: func(o *Options) { o.Secure.CertFile += ".gone" }, want: "--tls-cert-file"},
		"another one's key": {change: func(o *Options) { o.Secure.KeyFile = ca.path("other.key") }, want: "--tls-cert-file"},
		"no client CA":      {change: func(o *Options) { o.Secure.ClientCAFile = ca.path("gone") }, want: "--client-ca-file"},
		"policy file bad":   {change: func(o *Options) { o.PolicyFile = badPolicy }, want: "policy file"},
		"policy file gone":  {change: func(o *Options) { o.PolicyFile = badPolicy + ".gone" }, want: "policy file"},
		"kubeconfig absent": {
			change: func(o *Options) { o.Kubeconfig = "/does/not/exist" },
			want:   "--kubeconfig /does/not/exist",
		},
		"bad option": {change: func(o *Options) { o.Port = -1 }, want: "--port -1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// The queues of those who follow the files of a certificate end with who runs them, which nobody does here.
			const queue = "k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"
			defer leaks.None(t, goleak.IgnoreCurrent(), goleak.IgnoreTopFunction(queue))
			o := secureOptions(ca)
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

// A program with the server in its process reserves by it, and gets errors while it does not decide, and when it stops.
func TestServerInTheSameProcess(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u", ResourceVersion: "1"}}
	a, err := New(testOptions(), testClients(fake.NewClientset(testNode("a"), pod)), io.Discard)
	require.NoError(t, err)
	request := &reserver.Request{SchedulerName: "s", Pods: []*v1.Pod{pod}, Nodes: []string{"a"}}
	bind := &extenderv1.ExtenderBindingArgs{PodNamespace: "default", PodName: "p", PodUID: "u", Node: "a"}
	requireAway := func() {
		_, err := a.Reserver().Reserve(t.Context(), request)
		require.ErrorAs(t, err, new(*reserver.UnavailableError))
		_, err = a.Reserver().Revision(t.Context())
		require.ErrorAs(t, err, new(*reserver.UnavailableError))
		require.ErrorAs(t, a.Reserver().Bind(t.Context(), bind), new(*reserver.UnavailableError))
	}
	requireAway()
	info := &cluster.Pod{Ref: ledger.PodRef{Namespace: "default", Name: "p", UID: "u"}}
	require.ErrorContains(t, a.Arbiter().BindKnown(t.Context(), info, "a"), "no server decides now")

	require.NoError(t, a.Start(t.Context()))
	require.NoError(t, a.WaitReady(t.Context()))
	revision, err := a.Reserver().Revision(t.Context())
	require.NoError(t, err)
	assert.Equal(t, a.Ledger().Revision(), revision)
	inMemory := *request
	inMemory.Durable = new(bool)
	answer, err := a.Reserver().Reserve(t.Context(), &inMemory)
	require.NoError(t, err)
	assert.True(t, answer.Granted(), "%+v", answer)
	for i := range max(1, goruntime.GOMAXPROCS(0)/2) { // that is all that clients share
		leave, err := a.intake.Work(t.Context(), fmt.Sprint("client ", i))
		require.NoError(t, err)
		t.Cleanup(leave)
	}
	long := *pod
	long.Annotations = map[string]string{"ballast": strings.Repeat("x", 32<<20)}
	inMemory.Pods = []*v1.Pod{&long}
	answer, err = a.Reserver().Reserve(t.Context(), &inMemory)
	require.NoError(t, err)
	assert.True(t, answer.Granted(), "%+v", answer)
	bind.Node = "elsewhere"
	var refused *reserver.BindError
	require.ErrorAs(t, a.Reserver().Bind(t.Context(), bind), &refused)
	assert.Equal(t, "refused", refused.Outcome)
	require.NoError(t, a.Stop(context.Background()))
	requireAway()
}
