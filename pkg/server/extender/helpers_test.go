package extender

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/arbiter/arbitertest"
	"github.com/globalreserve/globalreserve/pkg/arbiter/matcher"
	"github.com/globalreserve/globalreserve/pkg/arbiter/question"
	"github.com/globalreserve/globalreserve/pkg/arbiter/steering"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/controller"
	"github.com/globalreserve/globalreserve/pkg/election"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// world is an Extender with everything around it. Nothing of it runs by itself but
// what a test starts.
type world struct {
	*Extender
	t        testing.TB
	router   *httprouter.Router
	ledger   *ledger.Ledger
	logs     *logtest.Hook // of the Extender
	api      *fakeAPI
	store    *cluster.Pods // what the watch of pods has brought
	question *question.Maker
	steering *steering.Steering
	policy   *policy.Store
	wakeups  *controller.Wakeups
	writes   *writes
	metrics  *metrics.Metrics

	everywhere [][]string // the nodes offered, of pods refused all
	undecided  string     // why nothing can be decided; "" where it can
}

// newWorld has a watch that is not behind, of a cluster without pods.
func newWorld(t testing.TB) *world {
	log, hook := logtest.NewNullLogger()
	log.SetLevel(logrus.DebugLevel)
	silent, _ := logtest.NewNullLogger()
	w := &world{
		t: t, router: httprouter.New(), ledger: ledger.New(ledger.Options{JournalSize: 256, TombstoneCount: 16}), logs: hook,
		api: &fakeAPI{pods: map[types.NamespacedName]*v1.Pod{}}, store: cluster.NewPods(), metrics: metrics.New(),
		writes: &writes{nominated: map[string]string{}}, policy: policy.NewStore(policy.Default(), time.Minute),
	}
	w.store.Seen(startVersion)
	w.question = &question.Maker{
		Reader: cluster.Reader{Table: w.ledger.Table()}, Matcher: &matcher.Matcher{},
		Devices: func(*cluster.Pod) *ledger.DeviceRequest { return nil },
	}
	w.wakeups = controller.NewWakeups(controller.WakeupOptions{
		Ledger: w.ledger.Reader, Question: w.question, Patcher: w.writes, Pods: w.store, Log: silent, OnWakeup: func() {},
		Steer: func(*cluster.Pod) bool { return false }, Send: func(*cluster.Pod, int) bool { return false },
		Ready: func(ctx context.Context) error { // or it would take all pending pods for refused
			<-ctx.Done()
			return ctx.Err()
		},
	})
	w.steering = steering.New(steering.Options{
		Ledger: w.ledger.Reader, Question: w.question, Nominator: w.writes, Node: arbitertest.PlainNode, Log: silent, OnGivenUp: w.wakeups.Wake,
	})
	objects := storetest.New(w.ledger)
	decider := arbiter.New(arbiter.Options{
		Ledger: arbiter.NewGatedLedger(w.ledger, steady.New(time.Now), func() string { return w.undecided }, arbitertest.Refuse("forbidden")), Pods: w.store, Question: w.question, API: w.api, Steering: w.steering, Policy: w.policy,
		Metrics: w.metrics, Log: silent, BindTimeout: 8 * time.Second,
		Store: objects.Store(t), Serving: func() bool { return true }, ReleaseSlots: objects.ReleaseSlots, MayUse: func(context.Context, user.Info, string) error { return nil }, Term: func() election.Term { return 0 },
		AskedBy: w.wakeups.AskedBy,
	})
	w.Extender = New(Options{
		Arbiter: decider, Ledger: w.ledger.Reader, Wakeups: w.wakeups, Metrics: w.metrics, Log: log,
		Intake:    httpjson.NewIntake(64<<20, func(*http.Request) string { return "" }),
		OnRefused: func(_ *cluster.Pod, offered []string) { w.everywhere = append(w.everywhere, offered) },
	})
	w.Register(w.router)
	return w
}

// startVersion is what the watch has seen from the start: that of newPod.
const startVersion = 7

// score has pods scored this way.
func (w *world) score(how policy.Prioritize) {
	p := *w.policy.Current()
	p.Prioritize = how
	w.policy.Set(&p)
}

// node adds a node with so many milli-CPU and bytes of memory.
func (w *world) node(name string, cpu, memory int64) {
	w.ledger.ObserveNode(ledger.NodeObservation{Name: name, Allocatable: []resources.Amount{
		{Column: resources.CPU, Value: cpu}, {Column: resources.Memory, Value: memory}, {Column: resources.Pods, Value: 110},
	}})
}

// run puts a bound pod on a node.
func (w *world) run(uid types.UID, node string, cpu, memory int64, ports ...resources.HostPort) {
	w.ledger.ObservePod(ledger.PodObservation{
		Pod: ledger.PodRef{Namespace: "ns", Name: string(uid), UID: uid}, Node: node,
		Request: &resources.Request{
			Amounts: []resources.Amount{
				{Column: resources.CPU, Value: cpu}, {Column: resources.Memory, Value: memory}, {Column: resources.Pods, Value: 1},
			},
			Ports: ports,
		},
	})
}

// reserve holds capacity for a pod on a node.
func (w *world) reserve(p *v1.Pod, node string) {
	info, err := cluster.Reader{Table: w.ledger.Table()}.NewPod(p)
	require.NoError(w.t, err)
	plan := ledger.NewPlan([]ledger.Placement{info.Placement(node)}, ledger.AllOrNothing, time.Now().Add(time.Hour))
	require.Equal(w.t, 1, w.ledger.Reserve(plan, time.Now()).Granted)
}

// post sends a body (text, or something to encode) and returns the answer.
func (w *world) post(verb string, body any) *httptest.ResponseRecorder {
	text, ok := body.(string)
	if !ok {
		encoded, err := json.Marshal(body)
		require.NoError(w.t, err)
		text = string(encoded)
	}
	r := httptest.NewRequest(http.MethodPost, "/"+verb, strings.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	w.router.ServeHTTP(recorder, r)
	return recorder
}

// ask posts a request that is answered with 200.
func (w *world) ask(verb string, body, into any) {
	w.t.Helper()
	got := w.post(verb, body)
	require.Equal(w.t, http.StatusOK, got.Code, got.Body.String())
	assert.Equal(w.t, "application/json", got.Header().Get("Content-Type"))
	assert.Equal(w.t, fmt.Sprint(got.Body.Len()), got.Header().Get("Content-Length"))
	require.NoError(w.t, json.Unmarshal(got.Body.Bytes(), into))
}

// newPod returns a pod that asks for one CPU and a gigabyte.
func newPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"},
		Spec: v1.PodSpec{
			SchedulerName: "scheduler",
			Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1G")},
			}}},
		},
	}
}

// typicalPod is what kube-scheduler sends of a pod of a Deployment: 4 KB.
func typicalPod(t testing.TB) *v1.Pod {
	text, err := os.ReadFile("testdata/pod.json")
	require.NoError(t, err)
	var pod v1.Pod
	require.NoError(t, json.Unmarshal(text, &pod))
	return &pod
}

// fits asks filter about one pod on one node.
func (w *world) fits(pod *v1.Pod, node string) bool {
	w.t.Helper()
	var got extenderv1.ExtenderFilterResult
	w.ask("filter", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{node}}, &got)
	return len(*got.NodeNames) == 1
}
