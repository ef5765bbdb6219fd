package election

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/election/termtest"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// world is an API server with a Lease and a LedgerTerm; fenced says that it has the fence, too.
type world struct {
	t      *testing.T
	core   *fake.Clientset
	own    *termtest.API
	fenced atomic.Bool
	clock  *steady.Clock
	// suspended is how long the machine was suspended, in nanoseconds.
	suspended atomic.Int64
	took      int           // times a server took over
	led       time.Duration // how long ago another one had led then
	// resumed is how often a server went on that could not renew its Lease.
	resumed int
	// followed is how often a server saw that another one leads.
	followed atomic.Int32

	mu      sync.Mutex
	version int // of the Lease
}

// inWorld runs a test in a bubble, with the fence.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, true)) })
}

func newWorld(t *testing.T, fenced bool) *world {
	w := &world{t: t, core: fake.NewClientset(), own: termtest.New(t)}
	w.fenced.Store(fenced)
	begun := time.Now()
	w.clock = steady.New(time.Now, func() time.Duration {
		return time.Since(begun) + time.Hour + time.Duration(w.suspended.Load())
	})
	if fenced {
		w.install()
	}
	// Of two updates of one version an API server refuses the later; a fake one does not.
	w.core.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		lease := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		w.mu.Lock()
		defer w.mu.Unlock()
		if known, _ := strconv.Atoi(lease.ResourceVersion); known != w.version {
			return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, errors.New("it was changed"))
		}
		w.version++
		lease.ResourceVersion = strconv.Itoa(w.version)
		return false, nil, nil
	})
	w.core.PrependReactor("create", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.version++
		a.(clienttesting.CreateAction).GetObject().(*coordinationv1.Lease).ResourceVersion = strconv.Itoa(w.version)
		return false, nil, nil
	})
	w.core.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		binding := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		if said, _ := strconv.Atoi(binding.Annotations[v1alpha1.TermAnnotation]); w.fenced.Load() && int64(said) < w.term() {
			return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Binding"}, binding.Name,
				field.ErrorList{field.Forbidden(nil, "ValidatingAdmissionPolicy '"+FenceName+"' denied request")})
		}
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, binding.Name)
	})
	return w
}

// install installs the policy, which need not do anything.
func (w *world) install() {
	_, err := w.core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(context.Background(),
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: FenceName}},
		metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// definitions has the kind of the LedgerTerm come and go; it is installed at first.
func (w *world) definitions() (installed *atomic.Bool) {
	installed = &atomic.Bool{}
	installed.Store(true)
	w.own.PrependReactor("*", "ledgerterms", func(clienttesting.Action) (bool, runtime.Object, error) {
		return !installed.Load(), nil, apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "",
			"page not found", 0, true)
	})
	return installed
}

// term is that of the LedgerTerm, 0 without one.
func (w *world) term() int64 { return w.own.Term().Spec.Term }

// restore restores the Lease of a backup, and the term.
func (w *world) restore(backup *coordinationv1.Lease, term int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version, _ = strconv.Atoi(backup.ResourceVersion)
	require.NoError(w.t, w.core.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), backup,
		backup.Namespace))
	w.own.Edit(func(of *v1alpha1.LedgerTerm) { of.Spec.Term = term })
}

func (w *world) lease() *coordinationv1.LeaseSpec {
	lease, err := w.core.CoordinationV1().Leases("kube-system").Get(context.Background(), LeaseName, metav1.GetOptions{})
	require.NoError(w.t, err)
	return &lease.Spec
}

func (w *world) elector(name string, change func(*Options)) *Elector {
	log := logrus.New()
	log.SetOutput(io.Discard)
	o := Options{
		Client: w.core, Terms: w.own.GlobalreserveV1alpha1().LedgerTerms(), Namespace: "kube-system", Identity: name,
		Clock: w.clock, Times: DefaultTimes(), Bind: 3 * time.Second, Object: 3 * time.Second, Log: log,
		Follow:   func() { w.followed.Add(1) },
		Stale:    func() string { return "" },
		StandBy:  func() bool { return true },
		TakeOver: func(_ context.Context, led time.Duration) error { w.took++; w.led = led; return nil },
		Resume:   func(context.Context) error { w.resumed++; return nil },
	}
	if change != nil {
		change(&o)
	}
	e, err := New(o)
	require.NoError(w.t, err)
	return e
}

// run runs an elector; stop ends it and returns its error.
func (w *world) run(e *Elector) (stop func() error) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// runBoth runs an elector, which leads, and a second later another one.
func (w *world) runBoth(first, second *Elector) (stopFirst, stopSecond func() error) {
	stopFirst = w.run(first)
	<-time.After(time.Second)
	return stopFirst, w.run(second)
}

// untilBetween is a minute, and the moment then is none in which the leader renews its Lease, or another looks at it:
// what a test changes there falls between two renewals.
const untilBetween = time.Minute + poll/2

// cutOff has an elector lose the way to its Lease while the flag is set.
func cutOff(e *Elector) (cut *atomic.Bool) {
	cut = &atomic.Bool{}
	e.lease.Interface = cutOffLease{e.lease.Interface, cut}
	return cut
}

type cutOffLease struct {
	resourcelock.Interface
	cut *atomic.Bool
}

var errNoRoute = errors.New("no route to the API server")

func (c cutOffLease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if c.cut.Load() {
		return nil, nil, errNoRoute
	}
	return c.Interface.Get(ctx)
}

func (c cutOffLease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if c.cut.Load() {
		return errNoRoute
	}
	return c.Interface.Update(ctx, record)
}
