package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/arbiter/arbitertest"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/ledger/ledgertest"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/leaks"
	"github.com/globalreserve/globalreserve/test/openapi"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	testScheduler = "batch-scheduler"
	testTTL       = arbitertest.TTL
	gib           = 1 << 30
)

// startTime is when the tests began.
var startTime = time.Now().UTC().Truncate(time.Second)

// fixture is a server on a ledger of its own.
type fixture struct {
	*arbitertest.World
	t       testing.TB
	arbiter *arbiter.Arbiter
	api     *API
	ledger  *ledger.Ledger
	log     *logrus.Logger
	done    chan struct{}
	server  *httptest.Server
	// notReady is why nothing can be decided.
	notReady string
	// waiting are the Reservation objects that wait for capacity.
	waiting []reservations.Pending
	// reads are the namespaces whose names a caller may see; nil: all.
	reads map[string]bool
}

func (f *fixture) mayRead(_ context.Context, _ user.Info, namespace string) error {
	if f.reads == nil || f.reads[namespace] {
		return nil
	}
	return &identity.DeniedError{Message: "may not"}
}

// newFixture starts a server with the nodes node-1 to node-3 of 4 CPU and 8 GiB, in a
// cluster that does not know Reservations.
func newFixture(t testing.TB, limits Limits, changes ...func(*http.Server)) *fixture {
	t.Helper()
	f := newBareFixture(t)
	f.NoKind = true
	f.start(limits)
	f.server = httptest.NewUnstartedServer(testRouter(f.api, f.log))
	for _, change := range changes {
		change(f.server.Config)
	}
	f.server.Start()
	found := &openapi.Found{}
	found.Report(t)
	client := f.server.Client()
	client.Transport = &openapi.Transport{Base: client.Transport, Found: found}
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
		f.stop()
		require.NoError(t, ledgertest.CheckInvariants(f.ledger.Reader))
	})
	return f
}

// newBareFixture is newFixture without the API.
func newBareFixture(t testing.TB) *fixture {
	w := arbitertest.NewWorld(ledger.New(ledger.Options{FirstRevision: 1000, JournalSize: 64}))
	f := &fixture{World: w, t: t, ledger: w.Ledger, log: w.Log, done: make(chan struct{})}
	for i := 1; i <= 3; i++ {
		f.addNode(fmt.Sprintf("node-%d", i), "4", "8Gi")
	}
	return f
}

// start makes the API and what decides for it.
func (f *fixture) start(limits Limits) {
	f.Undecided = func() string { return f.notReady }
	f.arbiter = f.New(f.t, nil)
	f.api = New(Options{
		Arbiter: f.arbiter, Ledger: f.ledger.Reader, Clock: f.Clock, Metrics: f.Metrics, Done: f.done, Limits: limits,
		Intake:  httpjson.NewIntake(64<<20, func(*http.Request) string { return "" }),
		MayRead: f.mayRead, PendingReservations: func() []reservations.Pending { return f.waiting },
	})
}

func (f *fixture) stop() {
	f.api.Stop()
	require.NoError(f.t, f.arbiter.Stop(context.Background()))
}

// counted returns a counter of the metrics by its name, without the prefix, and its labels.
func (f *fixture) counted(name string, labels ...string) int {
	f.t.Helper()
	families, err := f.Metrics.Gatherer().Gather()
	require.NoError(f.t, err)
	for _, family := range families {
		if family.GetName() != "globalreserve_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			have := map[string]bool{}
			for _, l := range m.GetLabel() {
				have[l.GetValue()] = true
			}
			if !slices.ContainsFunc(labels, func(l string) bool { return !have[l] }) {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

func testRouter(api *API, log *logrus.Logger) http.Handler {
	router := httpjson.NewRouter()
	api.Register(router)
	return httpjson.Recover(func(_ *http.Request, value any, stack []byte) {
		log.Errorf("panic: %v\n%s", value, stack)
	}, identity.Insecure(router))
}

func (f *fixture) addNode(name, cpu, memory string) {
	node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
		v1.ResourcePods: resource.MustParse("110"),
	}}}
	f.ledger.ObserveNode(ledger.NodeObservation{
		Name: name, UID: types.UID("uid-" + name), Allocatable: resources.Allocatable(f.ledger.Table(), node),
	})
}

// label gives a node labels, and changes nothing else of it.
func (f *fixture) label(name string, labels map[string]string) {
	view, _, ok := f.ledger.Node(name)
	require.True(f.t, ok)
	o := ledger.NodeObservation{Name: name, UID: view.UID, Unschedulable: view.Unschedulable, Labels: labels}
	for _, a := range view.Amounts {
		column, _ := f.ledger.Table().Intern(a.Resource)
		o.Allocatable = append(o.Allocatable, resources.Amount{Column: column, Value: a.Allocatable})
	}
	require.True(f.t, f.ledger.ObserveNode(o))
}

// aPod is a pod with one container.
func aPod(name, cpu, memory string) *v1.Pod {
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team-a", UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			SchedulerName: testScheduler,
			Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
			}}}},
		},
	}
}

// bind makes a pod bound, for the watch and for the ledger.
func (f *fixture) bind(pod *v1.Pod, node string) {
	bound := pod.DeepCopy()
	bound.Spec.NodeName = node
	info := f.Bring(bound)
	f.ledger.ObservePod(ledger.PodObservation{
		Pod: info.Ref, Node: node, Request: info.Request, Scheduler: info.Scheduler, Priority: info.Priority,
	})
}

// see makes the watch bring a pod.
func (f *fixture) see(pod *v1.Pod) *cluster.Pod { return f.Bring(pod) }

// body is a request as kube-globalreserve's client has it, and the extensions.
type body struct {
	Pods          []*v1.Pod
	Nodes         []string
	SchedulerName string
	Mode          string             `json:",omitempty"`
	TTLSeconds    int64              `json:",omitempty"`
	RequestID     string             `json:",omitempty"`
	DryRun        bool               `json:",omitempty"`
	MinRevision   uint64             `json:",omitempty"`
	Without       []reserver.GonePod `json:",omitempty"`
	Durable       *bool              `json:",omitempty"`
	Name          string             `json:",omitempty"`
	Namespace     string             `json:",omitempty"`
	Reservation   string             `json:",omitempty"`
}

func gang1(pod *v1.Pod, node string) body {
	return body{SchedulerName: testScheduler, Pods: []*v1.Pod{pod}, Nodes: []string{node}}
}

// send sends a request and returns the status and the body of the answer.
func (f *fixture) send(method, path string, body io.Reader, header ...string) (int, []byte) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, f.server.URL+path, body)
	require.NoError(f.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := f.server.Client().Do(req)
	require.NoError(f.t, err)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	require.NoError(f.t, err)
	return resp.StatusCode, data
}

// post sends a request that is answered with 200 and decodes the answer.
func (f *fixture) post(path string, request, answer any) {
	f.t.Helper()
	data, err := json.Marshal(request)
	require.NoError(f.t, err)
	status, reply := f.send(http.MethodPost, path, bytes.NewReader(data))
	require.Equal(f.t, http.StatusOK, status, string(reply))
	require.NoError(f.t, json.Unmarshal(reply, answer), string(reply))
}

// get fetches a path that is answered with 200 and decodes the answer.
func (f *fixture) get(path string, answer any) {
	f.t.Helper()
	status, reply := f.send(http.MethodGet, path, http.NoBody)
	require.Equal(f.t, http.StatusOK, status, string(reply))
	require.NoError(f.t, json.Unmarshal(reply, answer), string(reply))
}

func (f *fixture) reserve(request body) reserver.Answer {
	f.t.Helper()
	var answer reserver.Answer
	f.post("/reserve", request, &answer)
	return answer
}

func (f *fixture) unreserve(request body) reserver.Answer {
	f.t.Helper()
	var answer reserver.Answer
	f.post("/unreserve", request, &answer)
	return answer
}

// state is that of the pod's allocation, or Reserved where a slot is kept for it in memory.
func (f *fixture) state(pod *v1.Pod) string {
	ref := ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	if _, ok := f.ledger.InMemory(ref); ok {
		return "Reserved"
	}
	if view, ok := f.ledger.Allocation(ref); ok {
		return view.State.String()
	}
	return "None"
}

// countsFor is what a pod counts for: by its allocation, or by its slot in memory.
func (f *fixture) countsFor(ref ledger.PodRef) *resources.Request {
	if slot, ok := f.ledger.InMemory(ref); ok {
		return slot.Request
	}
	allocation, ok := f.ledger.Allocation(ref)
	require.True(f.t, ok)
	return allocation.Request
}

// nameOnly is a pod of which only the name is known.
func nameOnly(pod *v1.Pod) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
}

// recordedStream is the client of a stream that is not sent anywhere.
type recordedStream struct {
	bytes.Buffer
	header http.Header
}

func (r *recordedStream) Header() http.Header { return r.header }
func (r *recordedStream) WriteHeader(int)     {}
func (r *recordedStream) Flush()              {}

func (f *fixture) recordStream(t *testing.T) *stream {
	return &stream{connection: newConnection(t.Context(), &recordedStream{header: http.Header{}}, time.Second), api: f.api}
}
