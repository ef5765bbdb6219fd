package admission_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
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

	"github.com/globalreserve/globalreserve/pkg/admission"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// self is the user that the server under test is to the API server.
const self = "system:serviceaccount:globalreserve-system:globalreserve"

// world is a server's webhook with an API server and an informer that the test plays.
type world struct {
	t      *testing.T
	ledger *ledger.Ledger
	hook   *admission.Admission
	router *httprouter.Router
	log    *logtest.Hook

	mu       sync.Mutex // guards what follows
	version  int
	live     map[string]*v1.Pod       // what the API server has, by name
	informer map[string]*podinfo.Info // what the informer shows
	failing  error                    // what the API server answers instead
	noPatch  error                    // what it answers to patches instead
	annotate func()                   // called before each patch
	gets     int
	patches  int
	results  map[string]int // of decisions
	holds    []ledger.HoldRef
}

func newWorld(t *testing.T, change func(*admission.Options)) *world {
	t.Helper()
	w := &world{
		t: t, ledger: ledger.New(ledger.Options{JournalSize: 256, TombstoneCount: 256}), live: map[string]*v1.Pod{},
		informer: map[string]*podinfo.Info{}, results: map[string]int{}, version: 100,
	}
	w.node("a", "4")
	w.node("b", "4")
	logger, hook := logtest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	w.log = hook
	o := admission.Options{Ledger: w.ledger, Client: w, Pods: w, Metrics: w, Reservations: w, Log: logger}
	if change != nil {
		change(&o)
	}
	var err error
	w.hook, err = admission.New(o)
	require.NoError(t, err)
	w.router = httprouter.New()
	w.hook.Register(w.router)
	return w
}

func (w *world) node(name, cpu string) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpu), v1.ResourcePods: resource.MustParse("110"),
	}}}
	w.ledger.ObserveNode(ledger.NodeObservation{Name: name, Allocatable: resources.Allocatable(w.ledger.Table(), node)})
}

// start runs the background loop until the test's end.
func (w *world) start() {
	w.hook.Start()
	w.t.Cleanup(func() { w.hook.Stop(context.Background()) })
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

// show lets the informer see what the API server has of a pod, and tells the ledger.
func (w *world) show(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.live[name]
	if p == nil {
		if info := w.informer[name]; info != nil {
			w.ledger.RemovePod(info.Ref, info.ResourceVersion)
		}
		delete(w.informer, name)
		return
	}
	info, err := podinfo.New(w.ledger.Table(), p)
	require.NoError(w.t, err)
	w.informer[name] = info
	if info.Bound() {
		o := info.Observation()
		if info.Devices != nil {
			o.Devices = claimsOfGPUs{w.t}.Devices(info)
		}
		w.ledger.ObservePod(o)
		return
	}
	w.ledger.ObserveUnbound(info.Ref)
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

// beforePatch has something happen before each patch of a pod.
func (w *world) beforePatch(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.annotate = do
}

// sent returns how many requests the API server got.
func (w *world) sent() (gets, patches int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gets, w.patches
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = err
}

// failPatches has the API server read pods, and not change them.
func (w *world) failPatches(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noPatch = err
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

// Get implements admission.Client.
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

// Annotate implements admission.Client.
func (w *world) Annotate(_ context.Context, ref ledger.PodRef, annotation, value string) (*v1.Pod, error) {
	w.mu.Lock()
	w.patches++
	failing, hook := cmp.Or(w.failing, w.noPatch), w.annotate
	w.mu.Unlock()
	if failing != nil {
		return nil, failing
	}
	if hook != nil {
		hook()
	}
	w.change(ref.Name, func(p *v1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[annotation] = value
	})
	return w.Get(context.Background(), ref.Namespace, ref.Name)
}

// Self implements admission.Client.
func (w *world) Self(context.Context) (string, error) { return self, nil }

// Pod implements admission.Pods.
func (w *world) Pod(_, name string) (*podinfo.Info, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	info, ok := w.informer[name]
	return info, ok
}

// Candidates and Godel implement admission.Reservations.
func (w *world) Candidates(*podinfo.Info) []ledger.HoldRef { return w.holds }
func (w *world) Origin(string, string) podinfo.Origin      { return podinfo.Origin{Godel: true} }

// The rest implements admission.Metrics.
func (w *world) ObserveRequest(string, int, time.Duration) {}
func (w *world) ObserveConflict(string, string)            {}
func (w *world) ObserveDecision(_, _, result string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.results[result]++
}

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
func (w *world) post(body string) (int, string) {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodPost, admission.Path+"?timeout=5s", strings.NewReader(body))
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
func apply[T any](t *testing.T, response *admissionv1.AdmissionResponse, object *T) {
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
	claim, ok := w.ledger.Claim(ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)})
	if !ok {
		return "none"
	}
	return claim.State.String() + " on " + claim.Node
}

func (w *world) count(result string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.results[result]
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

type preemptors struct{ allowed bool }

func (p *preemptors) Allowed(types.UID) bool { return p.allowed }
func (p *preemptors) Withdraw(types.UID)     { p.allowed = false }
