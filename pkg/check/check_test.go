package check

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/client"
)

// look asks a server with these metrics, whose clock is ahead, and returns what is seen of it and of the objects.
func look(t *testing.T, ahead time.Duration, metrics string, objects ...runtime.Object) *view {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		if r.URL.Path == "/metrics" {
			if name := strings.FieldsFunc(metrics, func(r rune) bool { return r == '{' || r == ' ' }); len(name) > 0 {
				_, _ = fmt.Fprintf(w, "# TYPE %s gauge\n%s\n", name[0], metrics)
			}
			return
		}
		_, _ = io.WriteString(w, "ok\nfence: up\n")
	}))
	t.Cleanup(server.Close)
	asks, err := client.New(client.Options{URL: server.URL})
	require.NoError(t, err)
	t.Cleanup(asks.Close)
	kube := fake.NewClientset(objects...)
	kube.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second))},
		}, nil
	})
	v := &view{Check: &Check{Kube: kube, Version: "v1", Servers: []Server{{Name: "a", Client: asks}}}}
	v.servers = []*answers{ask(t.Context(), &v.Servers[0])}
	require.NoError(t, v.servers[0].metricsErr)
	v.leader = v.servers[0]
	return v
}

// What no cluster of a test comes to be is found by what servers say of themselves.
func TestWhatServersSay(t *testing.T) {
	for name, tt := range map[string]struct {
		ahead   time.Duration
		metrics string
		part    func(*view, context.Context) []Line
		want    Line
	}{
		"clocks": {part: (*view).clocks, want: Line{State: OK, Says: "servers and API server agree"}},
		"a clock ahead": {
			ahead: time.Hour, part: (*view).clocks,
			want: Line{State: Warning, Says: "a server and the API server are (1h0m0s|59m59s) apart"},
		},
		"a clock behind": {
			ahead: -time.Hour, part: (*view).clocks,
			want: Line{State: Warning, Says: "a server and the API server are (1h0m0s|59m59s) apart"},
		},
		"versions": {
			metrics: `globalreserve_build_info{version="v1",revision="a"} 1`, part: (*view).versions,
			want: Line{State: OK, Says: "plugin v1; servers v1"},
		},
		"another version": {
			metrics: `globalreserve_build_info{version="v2",revision="a"} 1`, part: (*view).versions,
			want: Line{State: Warning, Says: "they differ: plugin v1; servers v2"},
		},
		"drift": {
			metrics: `globalreserve_ledger_drift{kind="pods"} 2`, part: (*view).ledger,
			want: Line{State: Fails, Says: "2 differences between ledger and cluster"},
		},
		"a silent watch": {
			metrics: `globalreserve_watch_age_seconds{kind="pods"} 90
globalreserve_watch_age_seconds{kind="nodes"} 89`, part: (*view).watches,
			want: Line{State: Fails, Says: "nothing was heard of pods for 90 s"},
		},
		"devices given twice": {
			metrics: "globalreserve_dra_double_devices 1", part: (*view).ledger,
			want: Line{State: Fails, Says: "1 DRA device is given twice"},
		},
		"not compared": {
			metrics: "globalreserve_nodes 3", part: (*view).ledger,
			want: Line{State: OK, Says: "3 nodes, none overcommitted; not yet compared with the cluster"},
		},
		"no watch": {
			part: (*view).watches,
			want: Line{State: Warning, Says: "could not be looked at: no server has shown that in its metrics"},
		},
		"no version": {
			part: (*view).versions,
			want: Line{State: Warning, Says: "could not be looked at: no server has shown that in its metrics"},
		},
		"no policy": {part: (*view).policy, want: Line{State: OK, Says: "the defaults: the server has no policy file"}},
		"a policy": {
			metrics: "globalreserve_policy_last_reload_success_timestamp_seconds 1.8e9", part: (*view).policy,
			want: Line{State: OK, Says: "loaded at 2027-01-15 08:00:00"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			lines := tt.part(look(t, tt.ahead, tt.metrics), t.Context())
			require.Len(t, lines, 1)
			assert.Equal(t, tt.want.State, lines[0].State)
			assert.Regexp(t, "^"+tt.want.Says+"$", lines[0].Says)
			assert.Equal(t, tt.want.State != OK, lines[0].Do != "", "what to do")
		})
	}
}

// A scheduler asks if one of its Bindings has the ledger's term, or the server has decided for it.
func TestSchedulers(t *testing.T) {
	began := time.Now().Add(-time.Hour)
	pods := func(scheduler string, bound time.Time, annotations map[string]string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: annotations},
			Spec:       v1.PodSpec{SchedulerName: scheduler, NodeName: "n"},
			Status: v1.PodStatus{Conditions: []v1.PodCondition{
				{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(bound)},
			}},
		}
	}
	byLedger := map[string]string{v1alpha1.TermAnnotation: "7"}
	static := map[string]string{v1.MirrorPodAnnotationKey: "x"}
	since := began.UTC().Format(time.DateTime)
	for name, tt := range map[string]struct {
		pod     *v1.Pod
		metrics string
		state   State
		says    string
	}{
		"by the ledger": {pod: pods("s", time.Now(), byLedger), state: OK, says: "s has bound 1 pod, and asks"},
		"by itself, having asked": {
			pod: pods("s", time.Now(), nil), metrics: `globalreserve_decisions_total{scheduler="s",verb="reserve"} 1`,
			state: OK, says: "s has bound 1 pod, and asks",
		},
		"having asked what counts for nothing": {
			pod: pods("s", time.Now(), nil), metrics: `globalreserve_decisions_total{scheduler="s",verb="whatif"} 1`,
			state: Fails, says: fmt.Sprintf("s has bound 1 pod since %s and never asked", since),
		},
		"never asked": {
			pod: pods("s", time.Now(), nil), metrics: `globalreserve_decisions_total{scheduler="t",verb="bind"} 1`,
			state: Fails, says: fmt.Sprintf("s has bound 1 pod since %s and never asked", since),
		},
		"with what is no term": {
			pod:   pods("s", time.Now(), map[string]string{v1alpha1.TermAnnotation: "x"}),
			state: Fails, says: fmt.Sprintf("s has bound 1 pod since %s and never asked", since),
		},
		"with a term to come": {
			pod:   pods("s", time.Now(), map[string]string{v1alpha1.TermAnnotation: "8"}),
			state: Fails, says: fmt.Sprintf("s has bound 1 pod since %s and never asked", since),
		},
		"one of many": {
			pod: pods("s", time.Now(), nil), metrics: `globalreserve_decisions_total{scheduler="other",verb="bind"} 1`,
			state: Warning, says: "s has bound 1 pod; whether it asks is not known",
		},
		"asks now and then": {
			pod: pods("s", time.Now(), byLedger), metrics: `globalreserve_bypassed_binds_total{scheduler="s"} 3`,
			state: Warning, says: "s has bound 1 pod, and 3 were found bound without asking",
		},
		"static": {pod: pods("s", time.Now(), static), state: OK, says: "no pod was bound since " + since},
		"before the server decided": {
			pod: pods("s", began.Add(-time.Minute), nil), state: OK, says: "no pod was bound since " + since,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := look(t, 0, tt.metrics, tt.pod)
			v.term = &v1alpha1.LedgerTerm{Spec: v1alpha1.LedgerTermSpec{Term: 7, Since: metav1.NewTime(began)}}
			lines := v.schedulers(t.Context())
			require.Len(t, lines, 1)
			assert.Equal(t, tt.state, lines[0].State)
			assert.Equal(t, tt.says, lines[0].Says)
		})
	}
}

// Some pods of a scheduler are its own, and those of schedulers that have no name in the metrics bypass the ledger.
func TestSomeAsk(t *testing.T) {
	pod := func(name string, annotations map[string]string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: name, Annotations: annotations, CreationTimestamp: metav1.Now(),
			},
			Spec: v1.PodSpec{SchedulerName: "s", NodeName: "n"},
		}
	}
	v := look(t, 0, `globalreserve_bypassed_binds_total{scheduler="other"} 9`,
		pod("a", map[string]string{v1alpha1.TermAnnotation: "7"}), pod("b", nil))
	lines := v.schedulers(t.Context())
	require.Len(t, lines, 2)
	assert.Equal(t, "s has bound 2 pods, 1 of them by the ledger", lines[0].Says)
	assert.Equal(t, "9 pods of others were found bound without asking", lines[1].Says)
	assert.Equal(t, Warning, Worst(lines))
}

// A server that stands by, or does not show its metrics, does not mean that no server decides.
func TestNoLeaderAmongThoseAsked(t *testing.T) {
	v := look(t, 0, "globalreserve_leader 0")
	v.leader = nil
	lines := v.leads(t.Context())
	assert.Equal(t, Warning, lines[0].State)
	assert.Contains(t, lines[0].Says, "stands by")
	v.servers[0].metricsErr = errUnread
	lines = v.leads(t.Context())
	assert.Equal(t, Warning, lines[0].State)
	assert.Contains(t, lines[0].Says, "not known")
	v.servers[0].ready = false
	lines = v.leads(t.Context())
	assert.Equal(t, Fails, lines[0].State)
}

// Servers have the names of pods.
func TestNames(t *testing.T) {
	v := &view{Check: &Check{Servers: []Server{{Name: "globalreserve-a"}, {Name: "http://127.0.0.1:1"}}}}
	v.term = &v1alpha1.LedgerTerm{Spec: v1alpha1.LedgerTermSpec{Leader: "host-7_1234"}}
	assert.Equal(t, "port of pod ns/(a server): (a server) at http://127.0.0.1:1, on (a server)",
		v.names().Replace("port of pod ns/globalreserve-a: host-7_1234 at http://127.0.0.1:1, on host-7"))
}

func TestWorst(t *testing.T) {
	line := func(s State) Line { return Line{State: s} }
	assert.Equal(t, OK, Worst(nil))
	assert.Equal(t, Warning, Worst([]Line{line(OK), line(Warning), line(OK)}))
	assert.Equal(t, Fails, Worst([]Line{line(Warning), line(Fails), line(Warning)}))
}
