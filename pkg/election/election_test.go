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
	"github.com/stretchr/testify/assert"
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
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	objects "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
)

// world is an API server with a Lease and a LedgerTerm; fenced says that it has the fence, too.
type world struct {
	t      *testing.T
	core   *fake.Clientset
	own    *objects.Clientset
	fenced atomic.Bool
	took   int           // times a server took over
	led    time.Duration // how long ago another one had led then
	// resumed is how often a server went on that could not renew its Lease.
	resumed int
	// followed is how often a server saw that another one leads.
	followed atomic.Int32
}

func newWorld(t *testing.T, fenced bool) *world {
	w := &world{t: t, core: fake.NewClientset(), own: objects.NewSimpleClientset()}
	w.fenced.Store(fenced)
	if fenced {
		w.install()
	}
	// Of two updates of one version an API server refuses the later; a fake one does not.
	var mu sync.Mutex
	var version int
	w.core.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		lease := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		mu.Lock()
		defer mu.Unlock()
		if known, _ := strconv.Atoi(lease.ResourceVersion); known != version {
			return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, errors.New("it was changed"))
		}
		version++
		lease.ResourceVersion = strconv.Itoa(version)
		return false, nil, nil
	})
	w.core.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		version = 0
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
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: FenceName}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// term is that of the LedgerTerm, 0 without one.
func (w *world) term() int64 {
	term, err := w.own.GlobalreserveV1alpha1().LedgerTerms().Get(context.Background(), v1alpha1.LedgerTermName, metav1.GetOptions{})
	if err != nil {
		return 0
	}
	return term.Spec.Term
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
		Times: DefaultTimes(), Bind: 3 * time.Second, Object: 3 * time.Second, Log: log,
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
	begun := time.Now() // in the bubble of a test
	e.lease.now = func() time.Duration { return time.Since(begun) + time.Hour }
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

func TestOneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		first, second := w.elector("first", nil), w.elector("second", nil)
		assert.Equal(t, "no server decides now; ask again in a moment", first.Leads())
		stopFirst := w.run(first)
		<-time.After(time.Second)
		require.Empty(t, first.Leads())
		assert.Equal(t, ever, w.led)
		assert.Zero(t, w.followed.Load(), "the first server need not prepare itself to take over")
		stopSecond := w.run(second)
		<-time.After(time.Minute + poll/2) // not in the moment in which the second one looks
		assert.Positive(t, w.followed.Load())
		assert.Empty(t, first.Leads(), "the lease is renewed")
		assert.Equal(t, "server first decides, and not this one", second.Leads())
		before := first.Term()
		assert.Equal(t, before, Term(w.term()))

		require.NoError(t, stopFirst())
		assert.NotEmpty(t, first.Leads())
		assert.Equal(t, before, first.Term(), "what it still sends must be known to be late")
		assert.Empty(t, ptr.Deref(w.lease().HolderIdentity, ""), "the next one need not wait")
		<-time.After(time.Second)
		require.Empty(t, second.Leads())
		assert.Less(t, w.led, time.Second)
		assert.Equal(t, before+1, second.Term())
		require.NoError(t, stopSecond())
	})
}

// A lease that cannot be renewed is lost before another server can have it. If none has, the server goes on as it can.
func TestLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		var away atomic.Bool
		w.core.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("the API server is away")
		})
		e := w.elector("only", nil)
		stop := w.run(e)
		<-time.After(time.Minute)
		require.Empty(t, e.Leads())
		away.Store(true)
		renewed := w.lease().RenewTime.Time
		for e.Leads() == "" {
			<-time.After(100 * time.Millisecond)
		}
		assert.Less(t, time.Since(renewed), DefaultTimes().Lease, "another server has it from then on")
		assert.Contains(t, e.Leads(), "could not renew its lease")
		term := e.Term()
		<-time.After(time.Minute)
		assert.NotEmpty(t, e.Leads())
		assert.Zero(t, w.resumed)
		away.Store(false)
		<-time.After(DefaultTimes().Lease)
		assert.Empty(t, e.Leads())
		assert.Equal(t, []int{1, 1}, []int{w.took, w.resumed})
		assert.Equal(t, term, e.Term())
		assert.Equal(t, term, Term(w.term()))
		require.NoError(t, stop())
		assert.Empty(t, ptr.Deref(w.lease().HolderIdentity, ""))
	})
}

// A server that could not renew its lease ends where another one has had it since, also if that one is gone again.
func TestLostLeaseOfAnother(t *testing.T) {
	for name, gone := range map[string]bool{"another one decides": false, "another one decided": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, true)
				var cut atomic.Bool
				first := w.elector("first", nil)
				first.lease.Interface = cutOff{first.lease.Interface, &cut}
				stopFirst := w.run(first)
				<-time.After(time.Minute)
				require.Empty(t, first.Leads())
				second := w.elector("second", nil)
				stopSecond := w.run(second)
				cut.Store(true)
				<-time.After(time.Minute)
				require.Empty(t, second.Leads())
				require.NotEmpty(t, first.Leads())
				if gone {
					require.NoError(t, stopSecond())
				}
				cut.Store(false)
				<-time.After(time.Minute)
				require.NotEmpty(t, first.Leads())
				require.ErrorIs(t, stopFirst(), ErrLost)
				assert.Zero(t, w.resumed)
				if !gone {
					require.NoError(t, stopSecond())
				}
			})
		})
	}
}

// cutOff is the Lease of a server that may be cut off from the API server.
type cutOff struct {
	resourcelock.Interface
	cut *atomic.Bool
}

func (c cutOff) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if c.cut.Load() {
		return nil, nil, errors.New("no route to the API server")
	}
	return c.Interface.Get(ctx)
}

func (c cutOff) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if c.cut.Load() {
		return errors.New("no route to the API server")
	}
	return c.Interface.Update(ctx, record)
}

// Where the API server was away from all servers, the one that decided goes on, and the other ones stand by.
func TestAllServersAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		var cut atomic.Bool
		first, second := w.elector("first", nil), w.elector("second", nil)
		first.lease.Interface = cutOff{first.lease.Interface, &cut}
		second.lease.Interface = cutOff{second.lease.Interface, &cut}
		stopFirst := w.run(first)
		<-time.After(time.Second)
		stopSecond := w.run(second)
		for outage := time.Second; outage < 2*time.Minute; outage += 7*time.Second + 130*time.Millisecond {
			<-time.After(time.Minute)
			require.Empty(t, first.Leads())
			cut.Store(true)
			<-time.After(outage)
			cut.Store(false)
		}
		<-time.After(time.Minute)
		assert.Empty(t, first.Leads())
		assert.Equal(t, 1, w.took)
		assert.Greater(t, w.resumed, 10)
		require.NoError(t, stopSecond())
		require.NoError(t, stopFirst())
	})
}

// A process that was suspended learns from its clock that the lease may be another's.
func TestSuspendedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		e := w.elector("only", nil)
		now := e.lease.now
		var suspended atomic.Int64
		e.lease.now = func() time.Duration { return now() + time.Duration(suspended.Load()) }
		stop := w.run(e)
		<-time.After(time.Second)
		require.Empty(t, e.Leads())
		suspended.Store(int64(time.Hour))
		assert.Contains(t, e.Leads(), "could not renew its lease")
		_ = stop()
	})
}

func TestWithoutAFence(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"the policy is not installed": func(*world) {},
		"the policy does nothing":     func(w *world) { w.install() },
		"the kind is not installed": func(w *world) {
			w.own.PrependReactor("*", "ledgerterms", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "page not found", 0, true)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, false)
				change(w)
				e := w.elector("only", nil)
				stop := w.run(e)
				<-time.After(3900 * time.Millisecond)
				assert.Contains(t, e.Leads(), "taking over", "what was sent before may still be carried out")
				<-time.After(fenceTimeout + time.Second)
				require.Empty(t, e.Leads())
				fence, ok := e.Fence()
				assert.True(t, ok)
				assert.False(t, fence.Up)
				assert.Contains(t, fence.Why, "manifests/")
				require.NoError(t, stop())
			})
		})
	}
}

// A server that tells of itself while another one takes over does not keep it from that, and is not forgotten.
// Whoever raises the term meanwhile does.
func TestRaiseWhileTheObjectChanges(t *testing.T) {
	w := newWorld(t, true)
	e := w.elector("only", nil)
	e.Advertise("https://only", "key")
	before, err := e.raise(t.Context())
	require.NoError(t, err)
	terms := w.own.GlobalreserveV1alpha1().LedgerTerms()
	gvr := v1alpha1.SchemeGroupVersion.WithResource("ledgerterms")
	meanwhile := func(change func(*v1alpha1.LedgerTerm)) {
		done := false
		w.own.PrependReactor("update", "ledgerterms", func(clienttesting.Action) (bool, runtime.Object, error) {
			if done {
				return false, nil, nil
			}
			done = true
			object, err := w.own.Tracker().Get(gvr, "", v1alpha1.LedgerTermName)
			require.NoError(t, err)
			term := object.(*v1alpha1.LedgerTerm).DeepCopy()
			change(term)
			require.NoError(t, w.own.Tracker().Update(gvr, term, ""))
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "ledgerterms"}, v1alpha1.LedgerTermName, nil)
		})
	}
	meanwhile(func(term *v1alpha1.LedgerTerm) { term.Status.Servers = []v1alpha1.LedgerServer{{Name: "another"}} })
	raised, err := e.raise(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before+1, raised)
	term, err := terms.Get(t.Context(), v1alpha1.LedgerTermName, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []v1alpha1.LedgerServer{{Name: "another"}}, term.Status.Servers)
	assert.Equal(t, "https://only", term.Spec.URL)
	assert.Equal(t, v1alpha1.PublicKey("key"), term.Spec.PublicKey)

	meanwhile(func(term *v1alpha1.LedgerTerm) { term.Spec.Term, term.Spec.Leader = term.Spec.Term+1, "another" })
	_, err = e.raise(t.Context())
	require.ErrorContains(t, err, "another has raised it")
}

// Whoever cannot take over lets others try, and tries again itself where nothing was begun.
func TestTakeOverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		fails := errors.New("cannot list pods")
		e := w.elector("only", func(o *Options) { o.TakeOver = func(context.Context, time.Duration) error { return fails } })
		require.ErrorIs(t, e.Run(t.Context()), fails)
		assert.Empty(t, ptr.Deref(w.lease().HolderIdentity, ""))

		var allowed atomic.Bool
		w.own.PrependReactor("update", "ledgerterms", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !allowed.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "ledgerterms"}, v1alpha1.LedgerTermName, nil)
		})
		e = w.elector("another", nil)
		stop := w.run(e)
		<-time.After(time.Minute)
		assert.NotEmpty(t, e.Leads())
		allowed.Store(true)
		<-time.After(10 * time.Second)
		assert.Empty(t, e.Leads())
		require.NoError(t, stop())
	})
}

// The term's object comes back when somebody deletes it, and who finds a later one decides no more.
func TestTermIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		terms := w.own.GlobalreserveV1alpha1().LedgerTerms()
		e := w.elector("only", nil)
		e.Advertise("https://only", "key")
		stop := w.run(e)
		<-time.After(time.Second)
		own := w.term()
		require.NotZero(t, own)
		require.NoError(t, terms.Delete(t.Context(), v1alpha1.LedgerTermName, metav1.DeleteOptions{}))
		e.Moved()
		synctest.Wait()
		assert.Equal(t, own, w.term())
		assert.Empty(t, e.Leads())

		earlier, err := terms.Get(t.Context(), v1alpha1.LedgerTermName, metav1.GetOptions{})
		require.NoError(t, err)
		earlier.Spec.Term, earlier.Spec.Leader = own-1, "before" // of a backup
		_, err = terms.Update(t.Context(), earlier, metav1.UpdateOptions{})
		require.NoError(t, err)
		<-time.After(DefaultTimes().Lease)
		assert.Equal(t, own, w.term())
		assert.Empty(t, e.Leads())

		cut, err := terms.Get(t.Context(), v1alpha1.LedgerTermName, metav1.GetOptions{})
		require.NoError(t, err)
		cut.Spec.URL, cut.Spec.PublicKey = "", "" // by a definition that does not know them
		_, err = terms.Update(t.Context(), cut, metav1.UpdateOptions{})
		require.NoError(t, err)
		<-time.After(DefaultTimes().Lease)
		whole, err := terms.Get(t.Context(), v1alpha1.LedgerTermName, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, "https://only", whole.Spec.URL)
		assert.Equal(t, v1alpha1.PublicKey("key"), whole.Spec.PublicKey)

		later, err := terms.Get(t.Context(), v1alpha1.LedgerTermName, metav1.GetOptions{})
		require.NoError(t, err)
		later.Spec.Term++
		_, err = terms.Update(t.Context(), later, metav1.UpdateOptions{})
		require.NoError(t, err)
		<-time.After(DefaultTimes().Lease)
		assert.NotEmpty(t, e.Leads())
		require.ErrorIs(t, stop(), ErrLost)
	})
}

// definitions has the kind of the LedgerTerm come and go; it is installed at first.
func (w *world) definitions() (installed *atomic.Bool) {
	installed = &atomic.Bool{}
	installed.Store(true)
	w.own.PrependReactor("*", "ledgerterms", func(clienttesting.Action) (bool, runtime.Object, error) {
		return !installed.Load(), nil, apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "page not found", 0, true)
	})
	return installed
}

// A term is higher than every one before also where the object and its definition were gone in between, and the clock
// is behind.
func TestTermOutlivesItsDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		installed := w.definitions()
		terms := w.own.GlobalreserveV1alpha1().LedgerTerms()
		_, err := terms.Create(t.Context(), &v1alpha1.LedgerTerm{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LedgerTermName},
			Spec:       v1alpha1.LedgerTermSpec{Term: time.Now().Add(time.Hour).Unix()},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		first, second, third := w.elector("first", nil), w.elector("second", nil), w.elector("third", nil)
		stop := w.run(first)
		<-time.After(time.Minute)
		require.Empty(t, first.Leads())

		require.NoError(t, terms.Delete(t.Context(), v1alpha1.LedgerTermName, metav1.DeleteOptions{}))
		installed.Store(false)
		require.NoError(t, stop())
		stop = w.run(second)
		<-time.After(time.Minute)
		require.Empty(t, second.Leads())
		assert.Zero(t, second.Term())
		installed.Store(true)
		<-time.After(DefaultTimes().Lease)
		assert.Greater(t, second.Term(), first.Term(), "the definition comes back while a server decides")
		<-time.After(time.Minute)

		require.NoError(t, terms.Delete(t.Context(), v1alpha1.LedgerTermName, metav1.DeleteOptions{}))
		require.NoError(t, stop())
		stop = w.run(third)
		<-time.After(time.Minute)
		require.Empty(t, third.Leads())
		assert.Greater(t, third.Term(), second.Term(), "it comes back with the next one")
		require.NoError(t, stop())
	})
}

// While the definition of the term is gone the server that decides says that late writes are not refused.
func TestFenceIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		installed := w.definitions()
		e := w.elector("only", nil)
		stop := w.run(e)
		<-time.After(time.Minute)
		up := func() bool {
			<-time.After(DefaultTimes().Lease)
			fence, _ := e.Fence()
			assert.Equal(t, fence.Up, fence.Why == "")
			return fence.Up
		}
		require.True(t, up())
		installed.Store(false)
		assert.False(t, up())
		assert.Empty(t, e.Leads(), "the one that decides goes on")
		installed.Store(true)
		assert.True(t, up())
		w.fenced.Store(false)
		assert.False(t, up(), "the policy is gone")
		w.fenced.Store(true)
		assert.True(t, up())
		require.NoError(t, stop())
	})
}

// Without the term's definition there may be that of Reservations, which are waited for as long as they may take.
func TestWaitsForObjectsWithoutATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.definitions().Store(false)
		e := w.elector("only", func(o *Options) { o.Object = 30 * time.Second })
		stop := w.run(e)
		<-time.After(30 * time.Second)
		assert.Contains(t, e.Leads(), "taking over")
		<-time.After(2 * time.Second)
		assert.Empty(t, e.Leads())
		require.NoError(t, stop())
	})
}

// A server whose cluster gets the definition of the term later has a term from then on.
func TestTermComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		var installed atomic.Bool
		w.own.PrependReactor("*", "ledgerterms", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !installed.Load(), nil, apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "page not found", 0, true)
		})
		e := w.elector("only", nil)
		stop := w.run(e)
		<-time.After(10 * time.Second)
		require.Empty(t, e.Leads())
		assert.Zero(t, e.Term())
		installed.Store(true)
		<-time.After(DefaultTimes().Lease)
		assert.NotZero(t, e.Term())
		assert.Equal(t, Term(w.term()), e.Term())
		require.NoError(t, stop())
	})
}

// The lease of a server that is gone is taken when it is over by the longer of both servers' times, and by one.
func TestLeaseOfAServerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		holder, times := "gone", int32(20)
		_, err := w.core.CoordinationV1().Leases("kube-system").Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: LeaseName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &times, RenewTime: &metav1.MicroTime{Time: time.Now()}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		first, second := w.elector("first", nil), w.elector("second", nil)
		stopFirst, stopSecond := w.run(first), w.run(second)
		<-time.After(19 * time.Second)
		assert.Equal(t, "server gone decides, and not this one", first.Leads())
		<-time.After(3 * time.Second)
		assert.NotEqual(t, first.Leads() == "", second.Leads() == "", "one of them decides")
		assert.Equal(t, 1, w.took)
		assert.InDelta(t, 20, w.led.Seconds(), 2)
		require.NoError(t, stopFirst())
		require.NoError(t, stopSecond())
	})
}

// A server that was suspended does not give up the lease of the one that has it now.
func TestLeaseOfOthersIsNotGivenUp(t *testing.T) {
	w := newWorld(t, true)
	first, second := w.elector("first", nil).lease, w.elector("second", nil).lease
	require.NoError(t, first.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "first"}))
	_, _, err := second.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, second.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "second"}))
	lost := false
	first.others = func() { lost = true }
	_, _, err = first.Get(t.Context())
	require.NoError(t, err)
	assert.True(t, lost)
	require.ErrorIs(t, first.Update(t.Context(), resourcelock.LeaderElectionRecord{}), errOthers)
	assert.Equal(t, "second", *w.lease().HolderIdentity)
	require.ErrorIs(t, second.Update(t.Context(), resourcelock.LeaderElectionRecord{}), errKept, "it may go on")
	second.resigns = func() bool { return true }
	require.NoError(t, second.Update(t.Context(), resourcelock.LeaderElectionRecord{}))
	assert.Empty(t, ptr.Deref(w.lease().HolderIdentity, ""))
}

// Without an election the server decides at once, in a term of its own.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		e := w.elector("only", func(o *Options) { o.Alone = true })
		stop := w.run(e)
		<-time.After(time.Second)
		assert.Empty(t, e.Leads())
		assert.NotZero(t, e.Term())
		require.NoError(t, stop())
	})
}

// Two that decide beside each other, of which one does not look, end each other again and again.
func TestAloneWaitsForTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true)
		first := w.elector("first", nil)
		stopFirst := w.run(first)
		<-time.After(time.Second)
		alone := w.elector("alone", func(o *Options) { o.Alone = true })
		stopAlone := w.run(alone)
		<-time.After(time.Minute)
		assert.Empty(t, first.Leads())
		assert.NotEmpty(t, alone.Leads())
		require.NoError(t, stopFirst())
		<-time.After(time.Second)
		assert.Empty(t, alone.Leads())
		require.NoError(t, stopAlone())
	})
}

func TestTimes(t *testing.T) {
	require.NoError(t, DefaultTimes().Validate(3*time.Second))
	require.NoError(t, Times{4 * time.Second, 3 * time.Second, time.Second}.Validate(3*time.Second))
	for name, times := range map[string]Times{
		"no whole seconds":         {1500 * time.Millisecond, time.Second, 100 * time.Millisecond},
		"renewed for too long":     {4 * time.Second, 4 * time.Second, time.Second},
		"never renewed":            {4 * time.Second, 0, time.Second},
		"tried too rarely":         {4 * time.Second, 3 * time.Second, 3 * time.Second},
		"shorter than one request": {3 * time.Second, 2 * time.Second, time.Second},
	} {
		require.Error(t, times.Validate(2500*time.Millisecond), name)
	}
}
