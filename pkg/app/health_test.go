package app

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/decidetest"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/admission"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// newHealth returns that of a server that decides.
func newHealth() *health {
	nothing := func() string { return "" }
	return &health{
		synced: func() bool { return true }, troubles: nothing, notLeading: nothing, unreachable: nothing,
		metrics: metrics.New(),
	}
}

// A server becomes ready while a request is being kept back: the answer must say why it was,
// because an answer with no Error says that it was granted.
func TestGateWhileTheServerBecomesReady(t *testing.T) {
	for _, path := range []string{"/filter", "/bind", "/v1/nodes"} {
		t.Run(path, func(t *testing.T) {
			looks, h := 0, newHealth()
			h.synced = func() bool {
				looks++
				return looks > 1 // from the second look on
			}
			decided := false
			gate := h.untilComplete(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { decided = true }))
			recorder := httptest.NewRecorder()
			gate.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, path, http.NoBody))
			assert.False(t, decided)
			var answer struct{ Error string }
			require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &answer), recorder.Body.String())
			assert.Contains(t, answer.Error, "not read all nodes and pods yet")
			assert.Equal(t, "1", recorder.Header().Get("Retry-After"))

			gate.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, http.NoBody))
			assert.True(t, decided, "and from then on it is served")
		})
	}
}

// A start that fails after the port was opened has nobody who serves it: the stop closes it.
func TestStopClosesAPortThatIsNotServedYet(t *testing.T) {
	s := newHTTPServer(&machineNetwork{}, anyPort, http.NotFoundHandler(), 1, logrus.New())
	require.NoError(t, s.listen())
	address := s.listener.Addr().String()
	s.close()
	again, err := net.Listen("tcp", address)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

// A process that is not sure any more to be the only one that decides refuses everything, whatever its account is.
func TestGateOfALeaseThatMayBeLost(t *testing.T) {
	held := true
	h := newHealth()
	h.notLeading = func() string {
		if held {
			return ""
		}
		return "could not renew its lease"
	}
	gate := h.untilComplete(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	ask := func() *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		gate.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/bind", http.NoBody))
		return recorder
	}
	assert.Equal(t, http.StatusTeapot, ask().Code)
	what := "nothing was heard of pods for 2m0s"
	h.stale.Store(&what)
	assert.Contains(t, ask().Body.String(), what)
	h.stale.Store(nil)
	held = false
	assert.Contains(t, ask().Body.String(), "could not renew its lease")

	api := &onePod{pod: &v1.Pod{}}
	api.pod.Namespace, api.pod.Name, api.pod.UID, api.pod.ResourceVersion = "ns", "p", "u", "1"
	a := &App{health: h, arbiter: newArbiter(t, api, h)}
	t.Cleanup(func() { require.NoError(t, a.arbiter.Stop(context.Background())) })
	assert.False(t, a.Deciding())
	var refused *gates.Error
	known := &cluster.Pod{Ref: ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"}}
	require.ErrorAs(t, a.Arbiter().BindKnown(t.Context(), known, "node"), &refused, "nor from within the process")
	assert.Equal(t, gates.NotReady, refused.Outcome)
	bind := func(node string) error {
		_, err := a.Arbiter().Bind(auth.Inside(t.Context()), known.Ref, node)
		return err
	}
	require.ErrorAs(t, bind("node"), &refused)
	assert.Equal(t, gates.NotReady, refused.Outcome)
	assert.Zero(t, api.bindings)

	held = true
	require.NoError(t, bind("node"), "the lease was all that was in the way")
	assert.Equal(t, 1, api.bindings)
	require.ErrorAs(t, bind("elsewhere"), &refused)
	assert.Equal(t, gates.Refused, refused.Outcome)
}

// onePod is an API server that has one pod.
type onePod struct {
	decide.API // nothing else is asked
	pod        *v1.Pod
	bindings   int
}

func (p *onePod) Get(context.Context, string, string) (*v1.Pod, error) { return p.pod.DeepCopy(), nil }

func (p *onePod) Bind(context.Context, *v1.Binding) error {
	p.bindings++
	return nil
}

// newArbiter returns an Arbiter of a ledger that has the node "node".
func newArbiter(t *testing.T, api decide.API, h *health) *decide.Arbiter {
	l := ledger.New(ledger.Options{})
	l.ObserveNode(ledger.NodeObservation{Name: "node", Allocatable: []resources.Amount{{
		Column: resources.Pods,
		Value:  1,
	}}})
	w := decidetest.NewWorld(l)
	w.Undecided = h.undecided
	return w.New(t, func(o *decide.Options) { o.API = api })
}

// Nobody waits for a server that only observes to read pods and nodes; it reports that when it has read all.
func TestGateOfAnObserver(t *testing.T) {
	h := newHealth()
	h.observes, h.synced = true, func() bool { return false }
	gate := h.untilComplete(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	for path, want := range map[string]int{
		"/filter": http.StatusTeapot, "/prioritize": http.StatusTeapot, "/preempt": http.StatusTeapot,
		"/bind":        http.StatusTeapot,
		admission.Path: http.StatusTeapot, admission.PodsPath: http.StatusTeapot,
		admission.ResourceClaimsPath: http.StatusTeapot,
		"/v1/nodes":                  http.StatusServiceUnavailable, "/v1/watch": http.StatusServiceUnavailable,
	} {
		answer := httptest.NewRecorder()
		gate.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, http.NoBody))
		assert.Equal(t, want, answer.Code, path)
	}
}
