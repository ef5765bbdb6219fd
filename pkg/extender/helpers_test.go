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

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// world is an Extender with everything around it.
type world struct {
	*Extender
	t       testing.TB
	router  *httprouter.Router
	ledger  *ledger.Ledger
	logs    *logtest.Hook
	pods    map[types.UID]*podinfo.Info // the informer's
	recent  map[types.UID]*podinfo.Info
	scoring Scoring

	requests  []string // verb code
	decisions []string // verb scheduler result
	conflicts []string // scheduler resource
	refused   []*podinfo.Info
	offered   []string // with the last refusal
	woken     []*podinfo.Info
	revision  uint64 // of the last refusal

	waitForPods func(ctx context.Context, version uint64) error // nil: the informer is never behind

	bindFunc func(pod ledger.PodRef, node string) (*podinfo.Info, error)
	binds    int
}

func newWorld(t testing.TB) *world {
	log, hook := logtest.NewNullLogger()
	log.SetLevel(logrus.DebugLevel)
	w := &world{
		t: t, router: httprouter.New(), ledger: ledger.New(ledger.Options{JournalSize: 256, TombstoneCount: 16}), logs: hook,
		pods: map[types.UID]*podinfo.Info{}, recent: map[types.UID]*podinfo.Info{},
	}
	w.Extender = New(Options{
		Ledger: w.ledger, Binder: w, Pods: w, Recent: recentPods(w.recent), Refusals: w, Metrics: w, Policy: w, Log: log,
	})
	w.Register(w.router)
	return w
}

type recentPods map[types.UID]*podinfo.Info

func (r recentPods) Add(pod *podinfo.Info) { r[pod.Ref.UID] = pod }
func (r recentPods) Get(uid types.UID) (*podinfo.Info, bool) {
	pod, ok := r[uid]
	return pod, ok
}

func (w *world) Bind(_ context.Context, pod ledger.PodRef, node string) (*podinfo.Info, error) {
	w.binds++
	return w.bindFunc(pod, node)
}

func (w *world) Pod(namespace, name string) (*podinfo.Info, bool) {
	for _, p := range w.pods {
		if p.Ref.Namespace == namespace && p.Ref.Name == name {
			return p, true
		}
	}
	return nil, false
}

func (w *world) WaitForPods(ctx context.Context, version uint64) error {
	if w.waitForPods == nil {
		return nil
	}
	return w.waitForPods(ctx, version)
}

func (w *world) Scoring() Scoring { return w.scoring }

func (w *world) Refused(pod *podinfo.Info, revision uint64, offered []string) {
	w.refused = append(w.refused, pod)
	w.revision = revision
	w.offered = offered
}

func (w *world) Wake(pod *podinfo.Info) { w.woken = append(w.woken, pod) }

func (w *world) ObserveRequest(verb string, code int, _ time.Duration) {
	w.requests = append(w.requests, fmt.Sprint(verb, " ", code))
}

func (w *world) ObserveDecision(verb, scheduler, result string) {
	w.decisions = append(w.decisions, fmt.Sprint(verb, " ", scheduler, " ", result))
}

func (w *world) ObserveConflict(scheduler, resource string) {
	w.conflicts = append(w.conflicts, scheduler+" "+resource)
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

// reserve holds room for a pod on a node.
func (w *world) reserve(p *v1.Pod, node string) {
	info, err := podinfo.New(w.ledger.Table(), p)
	require.NoError(w.t, err)
	plan := ledger.Plan{Placements: []ledger.Placement{info.Placement(node)}, Deadline: time.Now().Add(time.Hour)}
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
