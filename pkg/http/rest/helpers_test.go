package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/decidetest"
	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/auth/authtest"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/test/leaks"
	"github.com/globalreserve/globalreserve/test/openapi"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	testScheduler = "batch-scheduler"
	testTTL       = decidetest.TTL
	gib           = 1 << 30
)

// startTime is when the tests began.
var startTime = time.Now().UTC().Truncate(time.Second)

// fixture is a server on a ledger of its own, without a network.
type fixture struct {
	*decidetest.World
	t       testing.TB
	arbiter *decide.Arbiter
	gangs   *reserve.Arbiter
	api     *API
	handler http.Handler
	ledger  *ledger.Ledger
	log     *logrus.Logger
	serving context.Context
	endAll  context.CancelFunc // of what is served
	found   *openapi.Found     // what is not as the API's document has it; nil: nothing is held against that
	server  *httptest.Server   // of listen
	// notReady is why nothing can be decided.
	notReady string
	// whole are the pods that the API server lists.
	whole []*v1.Pod
	// waiting are the Reservation objects that wait for capacity.
	waiting []reservations.Pending
	drained []reservations.Drained
	// diff compares with a cluster; nil finds what names a secret.
	diff func(context.Context) (*reserver.DiffAnswer, error)
	// reads are the namespaces whose names a caller may see; nil: all.
	reads map[string]bool
	// reserves are the namespaces where callers may reserve that come by TLS; nil: all.
	reserves map[string]bool
}

// may lets "somebody of a-scheduler" act for that one alone, and everybody reserve and read where the fixture says.
func (f *fixture) may(caller string, right *authtest.Right) bool {
	switch right.Verb {
	case "use":
		_, of, some := strings.Cut(caller, " of ")
		return !some || of == right.Name
	case "reserve":
		return f.reserves == nil || f.reserves[right.Namespace]
	default:
		return f.reads == nil || f.reads[right.Namespace]
	}
}

func (f *fixture) differs(ctx context.Context) (*reserver.DiffAnswer, error) {
	if f.diff != nil {
		return f.diff(ctx)
	}
	return &reserver.DiffAnswer{Compared: []string{"pods"}, Differences: []reserver.Difference{{
		Kind:   "stale_allocation",
		Object: "pod secret-namespace/p",
	}}}, nil
}

// Limits are what a test has other than the server. Zero fields are the server's own, but that no heartbeat comes
// between the events of a test that takes long.
type Limits struct {
	MaxWatchers                              int64
	MinRevisionWait, Heartbeat, WriteTimeout time.Duration
}

func (l Limits) apply(a *API) {
	if l.MaxWatchers > 0 {
		a.watchers = httpjson.NewShares(l.MaxWatchers, l.MaxWatchers/2, 0)
	}
	a.heartbeat = cmp.Or(l.Heartbeat, time.Hour)
	a.revisionWait = cmp.Or(l.MinRevisionWait, a.revisionWait)
	a.watchWrite = cmp.Or(l.WriteTimeout, a.watchWrite)
}

// newFixture has the nodes node-1 to node-3 of 4 CPU and 8 GiB, in a cluster that does not know Reservations.
func newFixture(t testing.TB, limits Limits) *fixture {
	f := newBareFixture(t)
	f.NoKind = true
	f.start(limits)
	return f
}

// newDurable is newFixture in a cluster that knows Reservations.
func newDurable(t testing.TB) *fixture {
	f := newBareFixture(t)
	f.start(Limits{})
	return f
}

// newBareFixture is newDurable without the API.
func newBareFixture(t testing.TB) *fixture {
	w := decidetest.NewWorld(ledger.New(ledger.Options{FirstRevision: 1000, JournalSize: 64}))
	f := &fixture{World: w, t: t, ledger: w.Ledger, log: w.Log, found: &openapi.Found{}}
	f.serving, f.endAll = context.WithCancel(context.Background())
	f.found.Report(t)
	f.Undecided = func() string { return f.notReady }
	for i := 1; i <= 3; i++ {
		f.AddNode(fmt.Sprintf("node-%d", i), "4", "8Gi")
	}
	t.Cleanup(func() {
		f.stop()
		f.Store.Late.Wait()
	})
	return f
}

// start makes the API and what decides for it.
func (f *fixture) start(limits Limits) {
	rights := authtest.Checks(f.may)
	f.arbiter = f.New(f.t, func(o *decide.Options) { o.Rights = rights })
	f.gangs = f.NewReserve(f.t, f.arbiter, func(o *reserve.Options) { o.Rights = rights })
	f.api = New(Options{
		Arbiter: f.arbiter, Reserve: f.gangs, Drains: f.NewDrains(&f.whole), Waiting: f.Waiting, Ledger: f.ledger.Reader,
		Clock: f.Clock, Metrics: f.Metrics, Serving: f.serving,
		Intake: httpjson.NewIntake(64<<20, func(*http.Request) string { return "" }),
		Rights: rights, PendingReservations: func() []reservations.Pending { return f.waiting }, Diff: f.differs,
		DrainReservations: func() []reservations.Drained { return f.drained }, ResourceClaims: f.ResourceClaims,
	})
	limits.apply(f.api)
	f.handler = testRouter(f.api, f.log)
}

// listen has the server be reached over a network, for the tests of connections.
func (f *fixture) listen(change func(*http.Server)) {
	f.server = httptest.NewUnstartedServer(f.handler)
	change(f.server.Config)
	f.server.Start()
	client := f.server.Client()
	client.Transport = &openapi.Transport{Base: client.Transport, Found: f.found}
	f.t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
}

func (f *fixture) stop() {
	defer f.gangs.Stop()
	require.NoError(f.t, f.arbiter.Stop(context.Background()))
}

func testRouter(api *API, log *logrus.Logger) http.Handler {
	router := httpjson.NewRouter()
	api.Register(router)
	return httpjson.Recover(func(_ *http.Request, value any, stack []byte) {
		log.Errorf("panic: %v\n%s", value, stack)
	}, auth.Insecure(router))
}

// label gives a node labels, and changes nothing else of it.
func (f *fixture) label(name string, labels map[string]string) {
	view, _, ok := f.ledger.Node(name)
	require.True(f.t, ok)
	o := ledger.NodeObservation{Name: name, UID: view.UID, Unschedulable: view.Unschedulable, Labels: labels}
	for _, a := range view.Amounts {
		column, _ := f.ledger.Table().Offer(a.Resource)
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

// gangOf is a request for pods, each on the node at its place.
func gangOf(nodes string, pods ...*v1.Pod) body {
	return body{SchedulerName: testScheduler, Pods: pods, Nodes: strings.Fields(nodes)}
}

// memoryOnly is gangOf, kept in memory whatever the cluster knows.
func memoryOnly(nodes string, pods ...*v1.Pod) body {
	request := gangOf(nodes, pods...)
	request.Durable = ptr.To(false)
	return request
}

// serve answers a request whose body is text, or something to encode.
func (f *fixture) serve(method, path string, body any, header ...string) *httptest.ResponseRecorder {
	text, ok := body.(string)
	if !ok {
		data, err := json.Marshal(body)
		require.NoError(f.t, err)
		text = string(data)
	}
	r := httptest.NewRequest(method, path, strings.NewReader(text))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	f.compare(r, text, w)
	return w
}

// compare holds an answer against the API's document.
func (f *fixture) compare(r *http.Request, asked string, w *httptest.ResponseRecorder) {
	if f.found == nil {
		return
	}
	document, err := openapi.Read()
	require.NoError(f.t, err)
	f.found.Add(document.Violations(&openapi.Exchange{
		Method: r.Method, URL: r.URL, Type: r.Header.Get("Content-Type"), Asked: []byte(asked),
		Status: w.Code, Header: w.Header(), Answer: w.Body.Bytes(),
	})...)
}

// post sends a request that is answered with 200 and decodes the answer.
func (f *fixture) post(path string, request, answer any) {
	f.t.Helper()
	f.expect(f.serve(http.MethodPost, path, request), answer)
}

// get fetches a path that is answered with 200 and decodes the answer.
func get[T any](f *fixture, path string) (answer T) {
	f.t.Helper()
	f.expect(f.serve(http.MethodGet, path, ""), &answer)
	return answer
}

func (f *fixture) expect(got *httptest.ResponseRecorder, answer any) {
	f.t.Helper()
	require.Equal(f.t, http.StatusOK, got.Code, got.Body.String())
	require.NoError(f.t, json.Unmarshal(got.Body.Bytes(), answer), got.Body.String())
}

// allPages asks for page after page, each of which has something and says where to go on, and returns what all have.
func allPages(t *testing.T, page func(next string) (some []string, more string)) (all []string) {
	for next, more := "", true; more; more = next != "" {
		var some []string
		some, next = page(url.QueryEscape(next))
		require.NotEmpty(t, some)
		all = append(all, some...)
	}
	return all
}

// ask sends a request and returns the status and what was answered.
func (f *fixture) ask(path string, request any) (code int, answer reserver.Answer) {
	w := f.serve(http.MethodPost, path, request)
	require.NoError(f.t, json.Unmarshal(w.Body.Bytes(), &answer), w.Body.String())
	return w.Code, answer
}

func (f *fixture) reserve(request body) (answer reserver.Answer) {
	f.t.Helper()
	f.post("/reserve", request, &answer)
	return answer
}

func (f *fixture) unreserve(request body) (answer reserver.Answer) {
	f.t.Helper()
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

// assertExpires: what was reserved between a moment and now has the usual time. Clocks may differ by a second.
func assertExpires(t *testing.T, at, begun time.Time) {
	t.Helper()
	assert.WithinRange(t, at, begun.Add(testTTL-time.Second), time.Now().Add(testTTL+time.Second))
}

// nameOnly is a pod of which only the name is known.
func nameOnly(pod *v1.Pod) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
}

// recordedStream is the client of a stream that is not sent anywhere. It notes when it was written to.
type recordedStream struct {
	bytes.Buffer
	began time.Time
	at    []time.Duration
}

func (r *recordedStream) Header() http.Header { return http.Header{} }
func (r *recordedStream) WriteHeader(int)     {}
func (r *recordedStream) Flush()              {}
func (r *recordedStream) Write(p []byte) (int, error) {
	r.at = append(r.at, time.Since(r.began))
	return r.Buffer.Write(p)
}

var (
	errForbidden = apierrors.NewForbidden(v1alpha1.Resource("reservations"), "r", errors.New("not yours"))
	errTooMany   = apierrors.NewTooManyRequests("later", 1)
	errInternal  = apierrors.NewInternalError(errors.New("storage"))
	errLost      = errors.New("connection lost")
)

// fate is what becomes of a request to the API server.
type fate = storetest.Fate

// restart is a new server on the objects that are there. The ledger stays: it
// is what a start would make of them, and forget drops what is in memory only.
func (f *fixture) restart() {
	f.stop()
	f.start(Limits{})
}

// forget makes the ledger what a start would make of the objects.
func (f *fixture) forget() {
	views, _ := f.ledger.Slots()
	for _, view := range views {
		f.ledger.ReleaseSlots(view.Ref.Namespace, view.Ref.Name, view.Ref.Slot)
	}
	for _, slot := range f.granted() {
		f.ledger.ObserveSlot(slot)
	}
}

// granted are the slots that the objects say are held.
func (f *fixture) granted() (list []ledger.Slot) {
	for _, object := range f.Store.All() {
		slots, err := convert.GrantedSlots(f.ledger.Table(), object)
		require.NoError(f.t, err)
		list = append(list, slots...)
	}
	return list
}

// slots lists the slots of the ledger as namespace/name/slot@node.
func (f *fixture) slots() []string {
	views, _ := f.ledger.Slots()
	list := []string{}
	for i := range views {
		list = append(list, views[i].Ref.String()+"@"+views[i].Node)
	}
	return list
}

// written lists what the objects say is held, in the same form.
func (f *fixture) written() []string {
	list := []string{}
	for _, slot := range f.granted() {
		list = append(list, slot.Ref.String()+"@"+slot.Node)
	}
	slices.Sort(list)
	return list
}
