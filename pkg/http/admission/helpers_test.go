package admission_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/decidetest"
	"github.com/globalreserve/globalreserve/pkg/http/admission"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// world is a webhook with everything behind it, on nodes a and b of four CPUs.
type world struct {
	*decidetest.World
	t       testing.TB
	arbiter *decide.Arbiter
	router  *httprouter.Router
	version int // of the pod that was written last
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		World: decidetest.NewWorld(ledger.New(ledger.Options{JournalSize: 256, TombstoneCount: 256})), t: t, version: 100,
	}
	w.AddNode("a", "4", "8Gi")
	w.AddNode("b", "4", "8Gi")
	w.serve(nil)
	return w
}

// serve makes the Arbiter and the webhook.
func (w *world) serve(change func(*decide.Options)) {
	w.arbiter, w.router = w.New(w.t, change), httprouter.New()
	admission.New(admission.Options{
		Arbiter: w.arbiter, Metrics: w.Metrics, Log: w.Log,
		Intake: httpjson.NewIntake(64<<20, func(*http.Request) string { return "" }),
	}).Register(w.router)
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

// add writes a pod to the API server, and has the watch bring it.
func (w *world) add(p *v1.Pod) *v1.Pod {
	w.version++
	p = p.DeepCopy()
	p.ResourceVersion = strconv.Itoa(w.version)
	w.API.Put(p)
	r := w.Bring(p)
	w.Pods.Seen(r.ResourceVersion)
	if r.Bound() {
		w.Ledger.ObservePod(w.Question.Observation(r))
	} else {
		w.Ledger.ObserveUnbound(r.Ref, r.Scheduler)
	}
	return p
}

// info is a pod as the watch has brought it.
func (w *world) info(name string) *cluster.Pod {
	info, ok := w.Pods.Pod("ns", name)
	require.True(w.t, ok)
	return info
}

func binding(name, node string) *v1.Binding {
	return &v1.Binding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Target: v1.ObjectReference{Kind: "Node", Name: node},
	}
}

// review is what the API server sends.
func review(t testing.TB, name, resource, subresource string, object any,
	changes ...func(*admissionv1.AdmissionRequest),
) *admissionv1.AdmissionReview {
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

// byUs has the server itself ask, as arbitertest calls it.
func byUs(r *admissionv1.AdmissionRequest) { r.UserInfo.Username = "server" }

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
	return w.askAt(admission.Path, r)
}

// create has a pod with a node created: the API server has it planned, gives it a UID, and asks once more. It returns
// the answer that refuses it, or the last.
func (w *world) create(p *v1.Pod, changes ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionResponse {
	w.t.Helper()
	planned := w.ask(review(w.t, p.Name, "pods", "", p, changes...))
	if !planned.Allowed {
		return planned
	}
	apply(w.t, planned, p)
	p.Namespace, p.UID = "ns", types.UID("uid-"+p.Name)
	response := w.askAt(admission.PodsPath, review(w.t, p.Name, "pods", "", p, changes...))
	require.Empty(w.t, response.Patch, "a validating webhook has none")
	return response
}

func (w *world) askAt(path string, r *admissionv1.AdmissionReview) *admissionv1.AdmissionResponse {
	w.t.Helper()
	code, answer := w.postTo(path, encode(w.t, r))
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

// state is that of the allocation of a pod the watch has brought.
func (w *world) state(name string) string {
	return w.stateOf(ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)})
}

func (w *world) stateOf(pod ledger.PodRef) string {
	allocation, ok := w.Ledger.Allocation(pod)
	if !ok {
		return "none"
	}
	return allocation.State.String() + " on " + allocation.Node
}

// count returns how many decisions of one result there were.
func (w *world) count(result string) int {
	return w.Counted(w.t, "decisions_total", "admission", result)
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

// time0 is before every deadline of a test.
var time0 = time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)

// slot is the one of the reservation that pods of index i may use, whose users come from Gödel.
var slot = ledger.SlotRef{Namespace: "ns", Name: "rsv", Slot: "0"}

// keep keeps the slot on node a, for a pod as this one.
func (w *world) keep(p *cluster.Pod) {
	require.NoError(w.t, w.Matcher.Set(&v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: slot.Namespace, Name: slot.Name,
			Annotations: map[string]string{v1alpha1.GodelReservationAnnotation: "true"},
		},
		Spec: v1alpha1.ReservationSpec{
			Slots:     []v1alpha1.Slot{{Name: slot.Slot}},
			Consumers: &v1alpha1.ConsumerSpec{Index: "i"},
		},
	}))
	result := w.Ledger.Reserve(ledger.Plan{Slots: []ledger.Slot{{Ref: slot, Node: "a", Request: p.Request}}}, time0)
	require.Empty(w.t, result.Rejections)
}

// indexed makes a pod one that may use the slot.
func indexed(p *v1.Pod) *v1.Pod {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.ReservationIndexAnnotation, "i")
	return p
}
