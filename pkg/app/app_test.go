package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeutil "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	restfake "k8s.io/client-go/rest/fake"
	clienttesting "k8s.io/client-go/testing"

	reservationsfake "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
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
		Core: readable{core}, Reservations: reservationsfake.NewSimpleClientset(), Metadata: metadatafake.NewSimpleMetadataClient(known),
	}
}

// readable has the objects of a fake clientset read by REST, too: the fake has no
// client of its own for that.
type readable struct{ kubernetes.Interface }

func (r readable) CoreV1() corev1client.CoreV1Interface { return readableCore{r.Interface.CoreV1()} }

// IsWatchListSemanticsUnSupported tells reflectors what the fake tells them.
func (readable) IsWatchListSemanticsUnSupported() bool { return true }

type readableCore struct{ corev1client.CoreV1Interface }

func (c readableCore) RESTClient() rest.Interface {
	return &restfake.RESTClient{
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(), GroupVersion: v1.SchemeGroupVersion,
		Client: restfake.CreateHTTPClient(func(r *http.Request) (*http.Response, error) {
			path := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // namespaces/NAMESPACE/pods/NAME
			if len(path) != 4 || path[2] != "pods" || r.Method != http.MethodGet {
				return nil, fmt.Errorf("%s %s is not served", r.Method, r.URL.Path)
			}
			pod, err := c.Pods(path[1]).Get(r.Context(), path[3], metav1.GetOptions{})
			var failed *apierrors.StatusError
			if errors.As(err, &failed) {
				failed.ErrStatus.Kind, failed.ErrStatus.APIVersion = "Status", "v1"
				return answer(int(failed.ErrStatus.Code), &failed.ErrStatus)
			}
			if err != nil {
				return nil, err
			}
			pod.Kind, pod.APIVersion = "Pod", "v1"
			return answer(http.StatusOK, pod)
		}),
	}
}

func answer(code int, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)),
	}, err
}

func testOptions() Options {
	o := DefaultOptions()
	o.Port = 0
	o.BindTimeout = 3 * time.Millisecond // how long a start waits for binds before it
	return o
}

// startApp runs a server on a fake API until the test ends.
func startApp(t *testing.T, o Options, client *fake.Clientset) (*App, *logBuffer) {
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

func TestServerServes(t *testing.T) {
	ignored := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		goleak.VerifyNone(t, ignored)
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
	code, body := get(t, a, "/version")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "goVersion")
	_, body = get(t, a, "/metrics")
	assert.Contains(t, body, "globalreserve_nodes 1")
	assert.Contains(t, body, `globalreserve_claims{state="Reserved"} 0`)

	pod := `{"metadata":{"namespace":"default","name":"p","uid":"u"},"spec":{"schedulerName":"s","containers":[{"name":"c","resources":{"requests":{"cpu":"3"}}}]}}`
	code, body = post(t, a, "/filter", `{"Pod":`+pod+`,"NodeNames":["a","b"]}`)
	assert.Equal(t, http.StatusOK, code, body)
	var filtered struct{ NodeNames []string }
	require.NoError(t, json.Unmarshal([]byte(body), &filtered))
	assert.Equal(t, []string{"a"}, filtered.NodeNames)

	code, body = post(t, a, "/reserve", `{"SchedulerName":"s","Pods":[`+pod+`],"Nodes":["a"]}`)
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, `"FailedPods":[]`)
	_, body = get(t, a, "/metrics")
	assert.Contains(t, body, `globalreserve_claims{state="Reserved"} 1`)
	assert.Contains(t, body, `globalreserve_decisions_total{`)

	code, body = get(t, a, "/no/such/path")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Contains(t, body, `"Error"`)
	code, body = get(t, a, "/filter")
	assert.Equal(t, http.StatusMethodNotAllowed, code)
	assert.Contains(t, body, `"Error"`)
	assert.Contains(t, log.String(), "serving")
}

// Until nodes and pods have been read, the account is not complete: no decision
// may be made on it, and kube-scheduler must be able to read why.
func TestServerRefusesDecisionsUntilSynced(t *testing.T) {
	client := fake.NewClientset()
	listing := make(chan struct{})
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		<-listing
		return false, nil, nil
	})
	a, _ := startApp(t, testOptions(), client)
	t.Cleanup(sync.OnceFunc(func() { close(listing) })) // before Stop waits for the list

	code, _ := get(t, a, "/livez")
	assert.Equal(t, http.StatusOK, code)
	code, body := get(t, a, "/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, "not read all nodes and pods yet")
	group := `{"SchedulerName":"s","Pods":[{"metadata":{"name":"p"}}],"Nodes":["n"]}`
	for path, want := range map[string]int{
		"/filter": http.StatusOK, "/bind": http.StatusOK,
		"/reserve": http.StatusServiceUnavailable, "/unreserve": http.StatusServiceUnavailable,
	} {
		code, body = post(t, a, path, group)
		assert.Equal(t, want, code, path)
		var answer struct {
			Error      string
			FailedPods []string
		}
		require.NoError(t, json.Unmarshal([]byte(body), &answer), path)
		assert.Contains(t, answer.Error, "not read all nodes and pods yet", path)
		assert.Equal(t, want != http.StatusOK, len(answer.FailedPods) == 1, "nobody takes it for granted")
	}
	for _, path := range []string{"/prioritize", "/preempt", "/v1/whatif"} {
		code, _ = post(t, a, path, "{}")
		assert.Equal(t, http.StatusServiceUnavailable, code, path)
	}
	code, _ = get(t, a, "/v1/nodes")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	code, _ = get(t, a, "/metrics")
	assert.Equal(t, http.StatusOK, code)
}

// A server killed with a bind under way leaves a binding that may be written
// after the next one has read all pods: until it cannot be any more, nobody may
// be granted that room.
func TestServerWaitsForBindsBeforeIt(t *testing.T) {
	o := testOptions()
	o.BindTimeout = time.Hour
	a, _ := startApp(t, o, fake.NewClientset(testNode("a")))
	require.Eventually(t, func() bool { return a.cache.Synced() && a.reservations.Synced() }, 10*time.Second, 5*time.Millisecond)
	code, body := get(t, a, "/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, "may still be under way")
	_, body = post(t, a, "/bind", "{}")
	assert.Contains(t, body, "may still be under way")
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
			require.NoError(t, err)
			require.ErrorContains(t, a.Start(t.Context()), tc.want)
		})
	}
}

func TestServerPolicyReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(maxTTL string) {
		t.Helper()
		text := "apiVersion: config.globalreserve.io/v1alpha1\nkind: GlobalReservePolicy\nreservations: {maxTTL: " + maxTTL + "}\n"
		require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write("1h")
	o := testOptions()
	o.PolicyFile = file
	a, log := startApp(t, o, fake.NewClientset(testNode("a")))
	require.NoError(t, a.WaitReady(t.Context()))
	reserve := func() int {
		code, _ := post(t, a, "/reserve", `{"SchedulerName":"s","TTLSeconds":3000,"DryRun":true,"Nodes":["a"],"Pods":[{"metadata":{"namespace":"default","name":"p"},"spec":{"containers":[{"name":"c"}]}}]}`)
		return code
	}
	assert.Equal(t, http.StatusOK, reserve())
	write("10m")
	require.Eventually(t, func() bool { return reserve() == http.StatusBadRequest }, 10*time.Second, 20*time.Millisecond)
	write("nonsense")
	require.Eventually(t, func() bool {
		_, body := get(t, a, "/metrics")
		return strings.Contains(body, "globalreserve_policy_reload_failures_total 1")
	}, 10*time.Second, 20*time.Millisecond)
	assert.Equal(t, http.StatusBadRequest, reserve(), "the policy before stays in force")
	assert.Contains(t, log.String(), "could not be put in force")
}
