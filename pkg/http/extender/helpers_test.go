package extender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/decidetest"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/background"
)

// world is an Extender with everything around it. Nothing of it runs by itself but what a test starts.
type world struct {
	*Extender
	*decidetest.World
	t         testing.TB
	router    *httprouter.Router
	api       *binder
	undecided string // why nothing can be decided; "" where it can
	caller    string // of requests; "" for nobody in particular
}

// newWorld has a watch that is not behind, of a cluster without pods. Its log is the Extender's.
func newWorld(t testing.TB) *world {
	w := &world{
		World: decidetest.NewWorld(ledger.New(ledger.Options{JournalSize: 256, TombstoneCount: 16})), t: t,
		router: httprouter.New(),
	}
	w.Log.SetLevel(logrus.DebugLevel)
	w.api = &binder{API: w.API}
	w.Undecided = func() string { return w.undecided }
	w.Pods.Seen(startVersion)
	decider := w.New(t, func(o *decide.Options) { o.API = w.api })
	w.Extender = New(Options{
		Arbiter: decider, Ledger: w.Ledger.Reader, Metrics: w.Metrics, Log: w.Log,
		Intake: httpjson.NewIntake(64<<20, func(*http.Request) string { return "" }),
	})
	w.Register(w.router)
	return w
}

// startVersion is what the watch has seen from the start: that of newPod.
const startVersion = 7

// score has pods scored this way.
func (w *world) score(how policy.Prioritize) {
	p := *w.Policy.Current()
	p.Prioritize = how
	w.Policy.Set(&p)
}

// node adds a node with so many milli-CPU and bytes of memory.
func (w *world) node(name string, cpu, memory int64) {
	w.Nodes.Put(&cluster.Node{Name: name})
	w.Ledger.ObserveNode(ledger.NodeObservation{Name: name, Allocatable: []resources.Amount{
		{Column: resources.CPU, Value: cpu}, {Column: resources.Memory, Value: memory}, {Column: resources.Pods, Value: 110},
	}})
}

// run puts a bound pod on a node.
func (w *world) run(uid types.UID, node string, cpu, memory int64, ports ...resources.HostPort) {
	w.Ledger.ObservePod(ledger.PodObservation{
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
	info, err := w.Question.Reader.NewPod(p)
	require.NoError(w.t, err)
	plan := ledger.NewPlan([]ledger.Placement{info.Placement(node)}, ledger.AllOrNothing, time.Now().Add(time.Hour))
	require.Equal(w.t, 1, w.Ledger.Reserve(plan, time.Now()).Granted)
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
	if w.caller != "" {
		r = r.WithContext(auth.As(r.Context(), &user.DefaultInfo{Name: w.caller}))
	}
	recorder := httptest.NewRecorder()
	w.router.ServeHTTP(recorder, r)
	return recorder
}

// ask posts a request that is answered with 200.
func ask[T any](w *world, verb string, body any) (answer T) {
	w.t.Helper()
	got := w.post(verb, body)
	require.Equal(w.t, http.StatusOK, got.Code, got.Body.String())
	assert.Equal(w.t, "application/json", got.Header().Get("Content-Type"))
	assert.Equal(w.t, fmt.Sprint(got.Body.Len()), got.Header().Get("Content-Length"))
	require.NoError(w.t, json.Unmarshal(got.Body.Bytes(), &answer))
	return answer
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

// filtered asks filter about one pod on some nodes.
func (w *world) filtered(pod *v1.Pod, nodes ...string) extenderv1.ExtenderFilterResult {
	w.t.Helper()
	return ask[extenderv1.ExtenderFilterResult](w, "filter", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes})
}

// preempted asks preempt about one pod.
func (w *world) preempted(p *v1.Pod, of map[string]*extenderv1.MetaVictims) map[string]*extenderv1.MetaVictims {
	w.t.Helper()
	args := extenderv1.ExtenderPreemptionArgs{Pod: p, NodeNameToMetaVictims: of}
	return ask[extenderv1.ExtenderPreemptionResult](w, "preempt", args).NodeNameToMetaVictims
}

// bound asks for a pod to be bound.
func (w *world) bound(p *v1.Pod, node string) reserver.BindAnswer {
	w.t.Helper()
	return ask[reserver.BindAnswer](w, "bind", extenderv1.ExtenderBindingArgs{
		PodName: p.Name, PodNamespace: p.Namespace, PodUID: p.UID, Node: node,
	})
}

// fits asks filter about one pod on one node.
func (w *world) fits(pod *v1.Pod, node string) bool {
	w.t.Helper()
	return len(*w.filtered(pod, node).NodeNames) == 1
}

// binder is an API server that carries out bindings.
type binder struct {
	*decidetest.API
	mu     sync.Mutex
	refuse func() error // the answer to every binding, if there is one
	posts  int
}

// Bind implements decide.API.
func (b *binder) Bind(ctx context.Context, binding *v1.Binding) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.posts++
	if b.refuse != nil {
		return b.refuse()
	}
	p, err := b.Get(ctx, binding.Namespace, binding.Name)
	if err != nil {
		return err
	}
	if binding.ResourceVersion != p.ResourceVersion {
		return apierrors.NewConflict(v1.Resource("pods"), p.Name, errors.New("it has another version"))
	}
	p.Spec.NodeName = binding.Target.Name
	b.Put(p)
	return nil
}

var errDown = errors.New("no route to the API server")

// bring has the watch bring a pod as it is.
func (w *world) bring(p *v1.Pod) {
	w.Pods.Seen(w.Bring(p).ResourceVersion)
}

// create makes a pod one that the API server has, and the watch has brought.
func (w *world) create(p *v1.Pod) {
	w.API.Put(p)
	w.bring(p)
}

// wokenAfter returns who has been woken a while after something happened. The caller is in a bubble.
func (w *world) wokenAfter(event func()) []string {
	defer background.Run(w.t, w.Waiting.Run)()
	event()
	<-time.After(3 * time.Second)
	return w.Writes.Woken()
}

// grow gives nodes capacity for everybody.
func (w *world) grow(nodes ...string) func() {
	return func() {
		for _, name := range nodes {
			if name != "" {
				w.node(name, 64000, 1<<40)
			}
		}
	}
}

// match has the reservation "match" match pods of the team t.
func (w *world) match() {
	require.NoError(w.t, w.Question.Matcher.Set(&v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "match"},
		Spec: v1alpha1.ReservationSpec{
			Slots:     []v1alpha1.Slot{{Name: "s"}},
			Consumers: &v1alpha1.ConsumerSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "t"}}},
		},
	}))
}

// slot keeps two CPUs of a node.
func (w *world) slot(name, node string, preemptible bool) {
	require.True(w.t, w.Ledger.ObserveSlot(ledger.Slot{
		Ref: ledger.SlotRef{Namespace: "ns", Name: name, Slot: "s"}, Node: node, Policy: ledger.Once,
		Request: placementtest.Request(2000), Preemptible: preemptible, Priority: -1,
	}))
}
