package decide

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/dra"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/auth/authtest"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/requeue/requeuetest"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

var (
	errReset   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	podKind    = v1.Resource("pods")
	bindings   = v1.Resource("pods/binding")
)

// when says whether and when the API server carries out a POST.
type when int

const (
	never  when = iota
	before      // before it answers
	later       // a while after it answered, or after the client gave up
)

// reply is what becomes of one POST.
type reply struct {
	commit when
	after  time.Duration // how long after the answer, for later
	hang   bool          // no answer until the client gives up
	err    error         // the answer; nil means the one of the API server
}

var (
	honest = reply{commit: before}
	lost   = reply{commit: before, err: errReset}
	unsent = reply{err: errReset}
)

func late(d time.Duration) reply { return reply{commit: later, after: d, err: errReset} }

// fakeAPI is the part of an API server that binds pods, with scripted answers.
type fakeAPI struct {
	mu    sync.Mutex
	pods  map[types.NamespacedName]*v1.Pod
	posts int
	gets  int
	// bind and get say what becomes of a POST or a GET, counted from 0; nil means that all is well.
	bind func(n int) reply
	get  func(n int) error
	// onBind is called with every POST that arrives, before bind is asked with the
	// API locked for both; onCommit of every pod bound, with the API locked.
	onBind   func(binding *v1.Binding)
	onCommit func()
	late     sync.WaitGroup
	// patch says what becomes of a patch; nil means that all is well. onPatch is called with
	// each that is carried out, before it is.
	patches int
	patch   error
	onPatch func()
	version int   // the last one given to a pod
	is      error // of IsOn
	lists   int
}

func newFakeAPI(pods ...*v1.Pod) *fakeAPI {
	a := &fakeAPI{pods: map[types.NamespacedName]*v1.Pod{}}
	for _, p := range pods {
		a.put(p)
	}
	return a
}

func key(p *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

func (a *fakeAPI) put(p *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods[key(p)] = p
	if p.ResourceVersion == "" {
		a.touch(p)
	}
}

// change changes pods while nobody reads them.
func (a *fakeAPI) change(how func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	how()
}

func (a *fakeAPI) remove(p *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pods, key(p))
}

// read returns a copy of a pod, nil if there is none.
func (a *fakeAPI) read(namespace, name string) *v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
}

// Bind implements API.
func (a *fakeAPI) Bind(ctx context.Context, binding *v1.Binding) error {
	a.mu.Lock()
	r := honest
	if a.onBind != nil {
		a.onBind(binding)
	}
	if a.bind != nil {
		r = a.bind(a.posts)
	}
	a.posts++
	a.mu.Unlock()
	var answer error
	if r.commit == before {
		answer = a.assign(binding)
	}
	if r.hang {
		<-ctx.Done()
		r.err = ctx.Err()
	}
	if r.commit == later {
		a.late.Go(func() {
			<-time.After(r.after)
			_ = a.assign(binding)
		})
	}
	if r.err != nil {
		return r.err
	}
	return answer
}

func (a *fakeAPI) assign(b *v1.Binding) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.assignLocked(b)
}

// assignLocked does what BindingREST.assignPod of the API server does. a.mu is held.
func (a *fakeAPI) assignLocked(b *v1.Binding) error {
	p := a.pods[types.NamespacedName{Namespace: b.Namespace, Name: b.Name}]
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(bindings, b.Name, fmt.Errorf(format, args...))
	}
	unmet := func(what string, asked, is any) error {
		return apierrors.NewConflict(podKind, b.Name, storage.NewInvalidObjError("/registry/pods/"+b.Namespace+"/"+b.Name,
			fmt.Sprintf("Precondition failed: %[1]s in precondition: %[2]v, %[1]s in object meta: %[3]v", what, asked, is)))
	}
	switch {
	case p == nil:
		return apierrors.NewNotFound(podKind, b.Name)
	case p.UID != b.UID:
		return unmet("UID", b.UID, p.UID)
	case b.ResourceVersion != "" && b.ResourceVersion != p.ResourceVersion:
		return unmet("ResourceVersion", b.ResourceVersion, p.ResourceVersion)
	case p.DeletionTimestamp != nil:
		return conflict("pod %s is being deleted, cannot be assigned to a host", p.Name)
	case p.Spec.NodeName != "":
		return conflict("pod %s is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		return conflict("pod %s has non-empty .spec.schedulingGates", p.Name)
	}
	p.Spec.NodeName = b.Target.Name
	for name, value := range b.Annotations {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, name, value)
	}
	a.touch(p)
	if a.onCommit != nil {
		a.onCommit()
	}
	return nil
}

// IsOn implements API.
func (a *fakeAPI) IsOn(_ context.Context, namespace, node string, selector labels.Selector) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists++
	for _, p := range a.pods {
		if p.Spec.NodeName == node && (namespace == "" || namespace == p.Namespace) &&
			selector.Matches(labels.Set(p.Labels)) {
			return true, a.is
		}
	}
	return false, a.is
}

// Get implements API.
func (a *fakeAPI) Get(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	a.mu.Lock()
	n := a.gets
	a.gets++
	script := a.get
	a.mu.Unlock()
	if script != nil {
		err := script(n)
		if errors.Is(err, context.DeadlineExceeded) {
			<-ctx.Done()
		}
		if err != nil {
			return nil, err
		}
	}
	if p := a.read(namespace, name); p != nil {
		return p, nil
	}
	return nil, apierrors.NewNotFound(podKind, name)
}

// Annotate implements API.
func (a *fakeAPI) Annotate(_ context.Context, pod ledger.PodRef, annotation, value string) (*v1.Pod, error) {
	a.mu.Lock()
	a.patches++
	answer, onPatch := a.patch, a.onPatch
	a.mu.Unlock()
	if answer != nil {
		return nil, answer
	}
	if onPatch != nil {
		onPatch()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
	switch {
	case p == nil:
		return nil, apierrors.NewNotFound(podKind, pod.Name)
	case p.UID != pod.UID:
		return nil, apierrors.NewConflict(podKind, pod.Name, errors.New("another UID"))
	}
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, annotation, value)
	a.touch(p)
	return p.DeepCopy(), nil
}

// touch gives a pod a new version. a.mu is held.
func (a *fakeAPI) touch(p *v1.Pod) {
	a.version++
	p.ResourceVersion = strconv.Itoa(1000 + a.version)
}

// self is the user that the server is to the API server.
const self = "system:serviceaccount:globalreserve-system:globalreserve"

// Self implements API.
func (a *fakeAPI) Self(context.Context) (string, error) { return self, nil }

// world is an Arbiter with everything around it.
type world struct {
	*Arbiter
	t         *testing.T
	api       *fakeAPI
	ledger    *ledger.Ledger
	store     *cluster.Pods // what the watch has brought
	question  *placement.Builder
	waiting   *requeue.Pods
	writes    *requeuetest.Writes // to pods that wait
	metrics   *metrics.Metrics
	undecided atomic.Pointer[string] // why nothing can be decided
	policy    *policy.Store
	gated     *gates.GatedLedger
}

// newWorld has the nodes a and b with capacity for four pods each, and a watch that
// has brought the pods. The ledger is checked when the test ends.
func newWorld(t *testing.T, pods ...*v1.Pod) *world {
	w := &world{
		t: t, api: newFakeAPI(pods...), ledger: ledger.New(ledger.Options{JournalSize: 256, TombstoneCount: 16}),
		store: cluster.NewPods(), metrics: metrics.New(),
	}
	w.question = placementtest.NewBuilder(w.ledger)
	placementtest.Nodes(w.ledger, 4000, "a", "b")
	w.policy = policy.NewStore(policy.Default(), time.Minute)
	w.gated = gates.NewGatedLedger(w.ledger, steady.New(time.Now, steady.Uptime), gates.New(w.policy),
		func() string { return ptr.Deref(w.undecided.Load(), "") })
	w.waiting, w.writes = requeuetest.New(w.gated, w.question, w.store, placementtest.Plain("a", "b", "c"))
	w.bring(pods...)
	w.Arbiter = w.newArbiter(Options{})
	t.Cleanup(w.end)
	return w
}

func (w *world) newArbiter(o Options) *Arbiter {
	o.Pods, o.Question, o.API, o.Waiting = w.store, w.question, w.api, w.waiting
	o.Policy, o.Metrics, o.Log, o.Ledger = w.policy, w.metrics, silent(), w.gated
	o.Term = election.NewOwnTerm(0)
	o.Rights = authtest.Checks(func(caller string, right *authtest.Right) bool {
		return caller == user.Anonymous || caller == "for-"+right.Name
	})
	o.BindTimeout = bindTimeout
	o.ResourceClaims = dra.New(dra.Options{Client: fake.NewClientset(), Log: silent()})
	return New(o)
}

// bindTimeout is the time limit of a bind in these tests.
const bindTimeout = 8 * time.Second

func silent() *logrus.Logger {
	log, _ := logtest.NewNullLogger()
	return log
}

// bring is what the watch does with the pods as they are now.
func (w *world) bring(pods ...*v1.Pod) {
	for _, p := range pods {
		r := cluster.Reader{Table: w.ledger.Table()}.Compact(p)
		w.store.Put(r)
		w.store.Seen(r.ResourceVersion)
	}
}

// forget makes the watch one that has brought nothing.
func (w *world) forget() {
	w.store = cluster.NewPods()
	w.o.Pods = w.store
}

// counted is what a metric counts, by the values of a label.
func (w *world) counted(metric, label string) map[string]int {
	families, err := w.metrics.Gatherer().Gather()
	require.NoError(w.t, err)
	counts := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == metric && l.GetName() == label {
					counts[l.GetValue()] += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return counts
}

// outcomes counts the bindings sent, by outcome.
func (w *world) outcomes() map[string]int {
	return w.counted("globalreserve_bind_outcomes_total", "outcome")
}

func (w *world) info(p *v1.Pod) *cluster.Pod {
	info, err := cluster.Reader{Table: w.ledger.Table()}.NewPod(p)
	require.NoError(w.t, err)
	return info
}

func (w *world) bindPod(p *v1.Pod, node string) error {
	_, err := w.Bind(auth.Inside(w.t.Context()), ref(p), node)
	return err
}

// on returns the state of a pod's allocation, known by UID or by name only.
func (w *world) on(pod ledger.PodRef) string {
	allocation, ok := w.ledger.Allocation(pod)
	if !ok {
		return "none"
	}
	return allocation.State.String() + " on " + allocation.Node
}

// observe passes a pod to the ledger, as the informers would.
func (w *world) observe(p *v1.Pod) {
	info := w.info(p)
	w.ledger.ObservePod(ledger.PodObservation{Pod: info.Ref, Node: info.Node, Request: info.Request})
}

// end stops the Arbiter and checks the ledger.
func (w *world) end() {
	require.NoError(w.t, w.Stop(context.Background()))
	w.api.late.Wait()
}

func ref(p *v1.Pod) ledger.PodRef {
	return ledger.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// newPod returns a pod that asks for a whole CPU.
func newPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			SchedulerName: "scheduler",
			Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
			}}},
		},
	}
}
