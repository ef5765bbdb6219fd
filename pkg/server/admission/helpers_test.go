package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/julienschmidt/httprouter"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/arbiter/matcher"
	"github.com/globalreserve/globalreserve/pkg/arbiter/question"
	"github.com/globalreserve/globalreserve/pkg/arbiter/steering"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/election"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/pkg/server/admission"
	"github.com/globalreserve/globalreserve/pkg/steady"
	"github.com/globalreserve/globalreserve/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// self is the user that the server under test is to the API server.
const self = "system:serviceaccount:globalreserve-system:globalreserve"

// world is a webhook with everything behind it: an Arbiter, what the watch has brought,
// and an API server that the test plays.
type world struct {
	t        testing.TB
	ledger   *ledger.Ledger
	store    *cluster.Pods // what the watch has brought
	question *question.Maker
	metrics  *metrics.Metrics
	arbiter  *arbiter.Arbiter
	router   *httprouter.Router

	mu        sync.Mutex // guards what follows
	version   int
	live      map[string]*v1.Pod // what the API server has, by name
	failing   error              // what the API server answers instead
	gets      int
	undecided string
	deciding  int // how often it decides still; negative: for ever
}

func newWorld(t *testing.T) *world { return newWorldWith(t, arbiter.Options{}) }

func newWorldWith(t testing.TB, o arbiter.Options) *world {
	t.Helper()
	w := &world{
		t: t, ledger: ledger.New(ledger.Options{JournalSize: 256, TombstoneCount: 256}), store: cluster.NewPods(),
		metrics: metrics.New(), live: map[string]*v1.Pod{}, version: 100, deciding: -1,
	}
	w.node("a", "4")
	w.node("b", "4")
	log, _ := logtest.NewNullLogger()
	w.question = &question.Maker{
		Reader: cluster.Reader{Table: w.ledger.Table()}, Matcher: &matcher.Matcher{},
		Devices: func(*cluster.Pod) *ledger.DeviceRequest { return nil },
	}
	o.Pods, o.Question, o.API, o.Metrics, o.Log, o.BindTimeout = w.store, w.question, w, w.metrics, log, 8*time.Second
	o.Policy = policy.NewStore(policy.Default(), time.Minute)
	o.Steering = steering.New(steering.Options{
		Ledger: w.ledger.Reader, Question: w.question, Nominator: w, Log: log,
		Node: func(name string) (cluster.Node, bool) { return cluster.Node{Name: name}, true }, OnGivenUp: func(*cluster.Pod) {},
	})
	o.Ledger = arbiter.NewGatedLedger(w.ledger, steady.New(time.Now), w.why)
	objects := storetest.New(w.ledger)
	o.Store, o.Serving, o.ReleaseSlots = objects.Store(t), func() bool { return true }, objects.ReleaseSlots
	o.Term = func() election.Term { return 0 }
	w.arbiter = arbiter.New(o)
	w.router = httprouter.New()
	admission.New(admission.Options{
		Arbiter: w.arbiter, Metrics: w.metrics, Log: log,
		Intake: httpjson.NewIntake(64<<20, func(*http.Request) string { return "" }),
	}).Register(w.router)
	return w
}

// why is why nothing can be decided.
func (w *world) why() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deciding == 0 {
		return "the Lease is lost"
	}
	if w.deciding > 0 {
		w.deciding--
	}
	return w.undecided
}

func (w *world) node(name, cpu string) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpu), v1.ResourcePods: resource.MustParse("110"),
	}}}
	w.ledger.ObserveNode(ledger.NodeObservation{Name: name, Allocatable: resources.Allocatable(w.ledger.Table(), node)})
}

// inBubble runs a test in which no time passes but what it waits for: a claim that nobody carries out is withdrawn soon.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// start has the Arbiter find out who the server is.
func (w *world) start() {
	var run sync.WaitGroup
	run.Go(func() { assert.NoError(w.t, w.arbiter.Run(w.t.Context())) })
	w.t.Cleanup(func() {
		assert.NoError(w.t, w.arbiter.Stop(context.Background()))
		run.Wait()
	})
}

func pod(name, cpu string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{SchedulerName: "naive", Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
	}
}

// put writes a pod to the API server.
func (w *world) put(p *v1.Pod) *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	p = p.DeepCopy()
	p.ResourceVersion = strconv.Itoa(w.version)
	w.live[p.Name] = p
	return p
}

// show has the watch bring what the API server has of a pod.
func (w *world) show(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := cluster.Reader{Table: w.ledger.Table()}.Compact(w.live[name])
	w.store.Put(r)
	w.store.Seen(r.ResourceVersion)
	if r.Bound() {
		w.ledger.ObservePod(w.question.Observation(r))
		return
	}
	w.ledger.ObserveUnbound(r.Ref)
}

// info is a pod as the watch has brought it.
func (w *world) info(name string) *cluster.Pod {
	info, ok := w.store.Pod("ns", name)
	require.True(w.t, ok)
	return info
}

// add is put and show.
func (w *world) add(p *v1.Pod) *v1.Pod {
	p = w.put(p)
	w.show(p.Name)
	return p
}

// change updates a pod at the API server.
func (w *world) change(name string, change func(*v1.Pod)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.live[name].DeepCopy()
	change(p)
	w.version++
	p.ResourceVersion = strconv.Itoa(w.version)
	w.live[name] = p
}

func (w *world) remove(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, name)
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = err
}

// carryOut does what the API server does with a binding that was allowed: it checks the
// preconditions and writes.
func (w *world) carryOut(b *v1.Binding) error {
	w.mu.Lock()
	p := w.live[b.Name]
	w.mu.Unlock()
	switch {
	case p == nil, b.UID != "" && b.UID != p.UID, b.ResourceVersion != "" && b.ResourceVersion != p.ResourceVersion, p.Spec.NodeName != "":
		return errors.New("conflict")
	}
	w.change(b.Name, func(p *v1.Pod) {
		p.Spec.NodeName = b.Target.Name
		for key, value := range b.Annotations {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
		}
	})
	return nil
}

// Get implements arbiter.API.
func (w *world) Get(_ context.Context, _, name string) (*v1.Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gets++
	switch p := w.live[name]; {
	case w.failing != nil:
		return nil, w.failing
	case p == nil:
		return nil, apierrors.NewNotFound(v1.Resource("pods"), name)
	default:
		return p, nil
	}
}

// Annotate implements arbiter.API.
func (w *world) Annotate(_ context.Context, pod ledger.PodRef, annotation, value string) (*v1.Pod, error) {
	w.change(pod.Name, func(p *v1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, annotation, value) })
	return w.Get(context.Background(), pod.Namespace, pod.Name)
}

// Self implements arbiter.API.
func (w *world) Self(context.Context) (string, error) { return self, nil }

// Bind implements arbiter.API: nobody binds through the server here.
func (w *world) Bind(context.Context, *v1.Binding) error { return errors.New("not here") }

// Nominate and Clear implement steering.Nominator.
func (w *world) Nominate(context.Context, ledger.PodRef, string) error { return nil }
func (w *world) Clear(context.Context, ledger.PodRef, string) error    { return nil }

func binding(name, node string) *v1.Binding {
	return &v1.Binding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Target: v1.ObjectReference{Kind: "Node", Name: node},
	}
}

// review is what the API server sends.
func review(t testing.TB, name, resource, subresource string, object any, changes ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionReview {
	t.Helper()
	raw, err := json.Marshal(object)
	require.NoError(t, err)
	request := &admissionv1.AdmissionRequest{
		UID: "review", Operation: admissionv1.Create, Namespace: "ns", Name: name,
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: resource}, SubResource: subresource,
		UserInfo: authenticationv1.UserInfo{Username: "naive"}, Object: runtime.RawExtension{Raw: raw},
	}
	for _, change := range changes {
		change(request)
	}
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	}
}

func dryRun(r *admissionv1.AdmissionRequest) { r.DryRun = ptr.To(true) }
func byUs(r *admissionv1.AdmissionRequest)   { r.UserInfo.Username = self }

// post sends a body and returns the status and the answer.
func (w *world) post(body string) (int, string) { return w.postTo(admission.Path, body) }

func (w *world) postTo(path, body string) (int, string) {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodPost, path+"?timeout=5s", strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	w.router.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String()
}

// ask returns the answer to a review.
func (w *world) ask(r *admissionv1.AdmissionReview) *admissionv1.AdmissionResponse {
	w.t.Helper()
	body, err := json.Marshal(r)
	require.NoError(w.t, err)
	code, answer := w.post(string(body))
	require.Equal(w.t, http.StatusOK, code, answer)
	var got admissionv1.AdmissionReview
	require.NoError(w.t, json.Unmarshal([]byte(answer), &got))
	require.Equal(w.t, "AdmissionReview", got.Kind)
	require.NotNil(w.t, got.Response)
	require.EqualValues(w.t, "review", got.Response.UID)
	return got.Response
}

// bind asks about a binding and returns it as it was allowed, or the refusal.
func (w *world) bind(b *v1.Binding, changes ...func(*admissionv1.AdmissionRequest)) (*v1.Binding, *metav1.Status) {
	w.t.Helper()
	response := w.ask(review(w.t, b.Name, "pods", "binding", b, changes...))
	if !response.Allowed {
		require.Empty(w.t, response.Patch)
		return nil, response.Result
	}
	allowed := b.DeepCopy()
	apply(w.t, response, allowed)
	return allowed, nil
}

// apply carries out the patch of a response, as the API server does.
func apply[T any](t testing.TB, response *admissionv1.AdmissionResponse, object *T) {
	t.Helper()
	if len(response.Patch) == 0 {
		return
	}
	require.Equal(t, admissionv1.PatchTypeJSONPatch, *response.PatchType)
	before, err := json.Marshal(object)
	require.NoError(t, err)
	p, err := jsonpatch.DecodePatch(response.Patch)
	require.NoError(t, err)
	after, err := p.Apply(before)
	require.NoError(t, err, string(response.Patch))
	*object = *new(T)
	require.NoError(t, json.Unmarshal(after, object))
}

func (w *world) state(name string) string {
	allocation, ok := w.ledger.Allocation(ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)})
	if !ok {
		return "none"
	}
	return allocation.State.String() + " on " + allocation.Node
}

// count returns how many decisions of one result there were, as the metrics do.
func (w *world) count(result string) (count int) {
	families, err := w.metrics.Gatherer().Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		if f.GetName() != "globalreserve_decisions_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "result" && label.GetValue() == result {
					count += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return count
}

func encode(t testing.TB, r *admissionv1.AdmissionReview) string {
	t.Helper()
	body, err := json.Marshal(r)
	require.NoError(t, err)
	return string(body)
}

func negative(p *v1.Pod) {
	p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("-1")
}

const (
	waitFor = 10 * time.Second
	poll    = 10 * time.Millisecond
)

// time0 is before every deadline of a test.
var time0 = time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)

// slot is the one of the reservation that pods of index i may use, whose users come from Gödel.
var slot = ledger.SlotRef{Namespace: "ns", Name: "rsv", Slot: "0"}

// keep keeps the slot on node a, for a pod as this one.
func (w *world) keep(p *cluster.Pod) {
	require.NoError(w.t, w.question.Matcher.Set(&v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: slot.Namespace, Name: slot.Name, Annotations: map[string]string{v1alpha1.GodelReservationAnnotation: "true"},
		},
		Spec: v1alpha1.ReservationSpec{Slots: []v1alpha1.Slot{{Name: slot.Slot}}, Consumers: &v1alpha1.ConsumerSpec{Index: "i"}},
	}))
	result := w.ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{{Ref: slot, Node: "a", Request: p.Request}}}, time0)
	require.Empty(w.t, result.Rejections)
}

// indexed makes a pod one that may use the slot.
func indexed(p *v1.Pod) *v1.Pod {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.ReservationIndexAnnotation, "i")
	return p
}
