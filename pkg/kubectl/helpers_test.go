package kubectl

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	reservefake "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
)

// now is the time of all tests.
var now = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// kubeconfig has two contexts; the current one has the namespace "default".
const kubeconfig = `
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: east, cluster: {server: https://east.invalid}}
contexts:
- {name: one, context: {cluster: east, user: jane}}
- {name: two, context: {cluster: east, user: jane, namespace: batch}}
users:
- {name: jane, user: {}}
`

// rig runs commands against fakes.
type rig struct {
	t            *testing.T
	kube         *kubefake.Clientset
	reservations *reservefake.Clientset
	// server is the address of the fake GlobalReserve; serving what routes has, in JSON.
	server *httptest.Server
	routes map[string]any
	// asked are the requests that the fake GlobalReserve got.
	asked []string
	// forwarded are the ports that were forwarded; clusterErr makes the kubeconfig unusable.
	forwarded  []podPort
	closed     int
	clusterErr error
}

func newRig(t *testing.T, objects ...runtime.Object) *rig {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(kubeconfig), 0o600))
	t.Setenv("KUBECONFIG", file)
	t.Setenv("HOME", t.TempDir())
	r := &rig{
		t: t, kube: kubefake.NewClientset(), reservations: reservefake.NewSimpleClientset(objects...),
		routes: map[string]any{},
	}
	r.server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.server.Close)
	return r
}

// refusal is an answer of the fake GlobalReserve that is not 200.
type refusal struct {
	status int
	body   string
}

func (r *rig) serve(w http.ResponseWriter, request *http.Request) {
	r.asked = append(r.asked, request.URL.RequestURI())
	answer, ok := r.routes[request.URL.RequestURI()]
	if !ok {
		http.NotFound(w, request)
		return
	}
	if refused, ok := answer.(refusal); ok {
		w.WriteHeader(refused.status)
		_, err := w.Write([]byte(refused.body))
		assert.NoError(r.t, err)
		return
	}
	assert.NoError(r.t, json.NewEncoder(w).Encode(answer))
}

func (r *rig) cluster() (*cluster, error) {
	if r.clusterErr != nil {
		return nil, r.clusterErr
	}
	return &cluster{kube: r.kube, reservations: r.reservations}, nil
}

func (r *rig) forward(_ context.Context, target podPort) (string, func(), error) {
	r.forwarded = append(r.forwarded, target)
	return r.server.URL, func() { r.closed++ }, nil
}

// result is what a command printed and how it ended.
type result struct {
	out, err string
	code     int
}

func (r *rig) run(args ...string) result {
	return r.runContext(r.t.Context(), args...)
}

func (r *rig) runContext(ctx context.Context, args ...string) result {
	r.t.Helper()
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	env := newEnvironment(streams)
	env.clock = clocktesting.NewFakePassiveClock(now)
	env.cluster, env.forward = r.cluster, r.forward
	code := execute(ctx, env, args)
	return result{out: r.mask(out.String()), err: r.mask(errOut.String()), code: code}
}

// mask replaces what differs from run to run.
func (r *rig) mask(text string) string {
	return strings.ReplaceAll(text, r.server.URL, "http://server")
}

// atServer adds --ledger-url to a command line.
func (r *rig) atServer(args ...string) []string {
	return append(args, "--ledger-url="+r.server.URL+"/")
}

// String is a transcript of it.
func (r result) String() string {
	text := r.out
	if r.err != "" {
		text += "--- stderr ---\n" + r.err
	}
	if r.code != 0 {
		text += "--- exit " + strconv.Itoa(r.code) + " ---\n"
	}
	return text
}
