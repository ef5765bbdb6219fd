package binder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

var (
	errReset   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	pods       = v1.Resource("pods")
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
	// bind and get say what becomes of a POST or a GET, counted from 0; nil
	// means that all is well.
	bind func(n int) reply
	get  func(n int) error
	// onBind is told of every POST that arrives, before bind is asked with the
	// API locked for both; onCommit of every pod bound, with the API locked.
	onBind   func(binding *v1.Binding)
	onCommit func()
	late     sync.WaitGroup
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

// Bind implements Client.
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

// assign does what BindingREST.assignPod of the API server does.
func (a *fakeAPI) assign(b *v1.Binding) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[types.NamespacedName{Namespace: b.Namespace, Name: b.Name}]
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(bindings, b.Name, fmt.Errorf(format, args...))
	}
	switch {
	case p == nil:
		return apierrors.NewNotFound(pods, b.Name)
	case p.UID != b.UID:
		return conflict("precondition failed: UID in precondition: %s, UID in object meta: %s", b.UID, p.UID)
	case p.DeletionTimestamp != nil:
		return conflict("pod %s is being deleted, cannot be assigned to a host", p.Name)
	case p.Spec.NodeName != "":
		return conflict("pod %s is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		return conflict("pod %s has non-empty .spec.schedulingGates", p.Name)
	}
	p.Spec.NodeName = b.Target.Name
	if a.onCommit != nil {
		a.onCommit()
	}
	return nil
}

// Get implements Client.
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
	return nil, apierrors.NewNotFound(pods, name)
}

// cache is an informer's view of pods.
type cache map[types.NamespacedName]*podinfo.Info

func (c cache) Pod(namespace, name string) (*podinfo.Info, bool) {
	info, ok := c[types.NamespacedName{Namespace: namespace, Name: name}]
	return info, ok
}

// world is a Binder with everything around it.
type world struct {
	*Binder
	t        *testing.T
	api      *fakeAPI
	ledger   *ledger.Ledger
	cache    cache
	recent   *Recent
	mu       sync.Mutex
	outcomes []Outcome
}

// newWorld has the nodes a and b with room for four pods each, and an informer
// that knows the pods.
func newWorld(t *testing.T, pods ...*v1.Pod) *world {
	w := &world{t: t, api: newFakeAPI(pods...), ledger: ledger.New(ledger.Options{JournalSize: 256, TombstoneCount: 16}), cache: cache{}, recent: NewRecent(10)}
	for _, name := range []string{"a", "b"} {
		w.ledger.ObserveNode(ledger.NodeObservation{Name: name, Allocatable: []resources.Amount{
			{Column: resources.CPU, Value: 4000}, {Column: resources.Pods, Value: 10},
		}})
	}
	for _, p := range pods {
		w.cache[key(p)] = w.info(p)
	}
	w.Binder = w.newBinder(Options{})
	return w
}

func (w *world) newBinder(o Options) *Binder {
	o.Ledger, o.Client, o.Pods, o.Recent = w.ledger, w.api, w.cache, w.recent
	o.OnOutcome = func(outcome Outcome) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.outcomes = append(w.outcomes, outcome)
	}
	b, err := New(o)
	require.NoError(w.t, err)
	return b
}

func (w *world) info(p *v1.Pod) *podinfo.Info {
	info, err := podinfo.New(w.ledger.Table(), p)
	require.NoError(w.t, err)
	return info
}

func (w *world) bindPod(p *v1.Pod, node string) error {
	_, err := w.Bind(w.t.Context(), ref(p), node)
	return err
}

// state is the state and the node of a pod's claim.
func (w *world) state(p *v1.Pod) (ledger.State, string) {
	claim, ok := w.ledger.Claim(ref(p))
	if !ok {
		return ledger.NoClaim, ""
	}
	return claim.State, claim.Node
}

// observe tells the ledger what a pod is, as the informers would.
func (w *world) observe(p *v1.Pod) {
	info := w.info(p)
	w.ledger.ObservePod(ledger.PodObservation{Pod: info.Ref, Node: info.Node, Request: info.Request})
}

// end stops the Binder and checks the ledger.
func (w *world) end() {
	require.NoError(w.t, w.Stop(context.Background()))
	w.api.late.Wait()
	require.NoError(w.t, w.ledger.CheckInvariants())
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
