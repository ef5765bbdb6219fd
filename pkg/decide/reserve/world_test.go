package reserve_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/decidetest"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/auth/authtest"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var (
	errReset   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	lostAnswer = storetest.Fate{Err: errReset}
	neverThere = storetest.Fate{Never: true, Err: errReset}
)

func times(n int, f storetest.Fate) []storetest.Fate { return slices.Repeat([]storetest.Fate{f}, n) }

// world is a server with the nodes a and b, each with capacity for four pods.
type world struct {
	*decidetest.World
	*reserve.Arbiter
	t         *testing.T
	single    *decide.Arbiter // which binds
	api       *api
	undecided atomic.Pointer[string] // why nothing can be decided
}

// newWorld has a watch that has brought the pods.
func newWorld(t *testing.T, pods ...*v1.Pod) *world {
	w := &world{t: t, World: decidetest.NewWorld(ledger.New(ledger.Options{JournalSize: 256, TombstoneCount: 16}))}
	w.api = &api{API: w.API}
	w.Undecided = func() string { return ptr.Deref(w.undecided.Load(), "") }
	w.AddNode("a", "4", "8Gi")
	w.AddNode("b", "4", "8Gi")
	w.bring(pods...)
	t.Cleanup(func() { // when the servers have stopped
		w.Store.Late.Wait()
	})
	w.Arbiter = w.server(nil)
	return w
}

// server returns the Arbiter of a server that runs until the test ends.
func (w *world) server(change func(*reserve.Options)) *reserve.Arbiter {
	rights := authtest.Checks(may)
	w.single = w.New(w.t, func(o *decide.Options) { o.API, o.Rights = w.api, rights })
	gangs := w.NewReserve(w.t, w.single, func(o *reserve.Options) {
		o.Rights = rights
		if change != nil {
			change(o)
		}
	})
	single := w.single
	w.t.Cleanup(func() {
		require.NoError(w.t, single.Stop(context.Background()))
		gangs.Stop()
	})
	return gangs
}

// alwaysDecides has nothing keep an Arbiter from deciding on gangs.
func (w *world) alwaysDecides(o *reserve.Options) {
	o.Ledger = gates.NewGatedLedger(w.Ledger, w.Clock, gates.New(w.Policy), func() string { return "" })
}

// may lets for-x act for scheduler x, and only-in-x reserve in namespace x alone.
func may(caller string, right *authtest.Right) bool {
	if right.Verb == "use" {
		return caller == user.Anonymous || caller == "for-"+right.Name
	}
	where, some := strings.CutPrefix(caller, "only-in-")
	return !some || where == right.Namespace
}

func as(ctx context.Context, name string) context.Context {
	return auth.As(ctx, &user.DefaultInfo{Name: name})
}

// bring has the watch bring pods.
func (w *world) bring(pods ...*v1.Pod) {
	for _, p := range pods {
		w.Bring(p)
	}
}

// reserve returns why an Arbiter keeps nothing for a gang, or does not know whether it does; "" if it does.
func (w *world) reserve(a *reserve.Arbiter, g *reserve.Request) string {
	w.t.Helper()
	d, err := a.Reserve(w.t.Context(), g)
	if unknown := (*reserve.UnknownError)(nil); errors.As(err, &unknown) {
		return "unknown: " + unknown.Message
	}
	require.NoError(w.t, err)
	return d.Error
}

func (w *world) slots() []string {
	views, _ := w.Ledger.Slots()
	list := []string{}
	for i := range views {
		list = append(list, views[i].Ref.String())
	}
	return list
}

func (w *world) written() []string {
	list := []string{}
	for _, object := range w.Store.All() {
		list = append(list, object.Namespace+"/"+object.Name)
	}
	return list
}

func (w *world) info(p *v1.Pod) *cluster.Pod {
	info, err := w.Question.Reader.NewPod(p)
	require.NoError(w.t, err)
	return info
}

// api binds pods. bind, if not nil, does it instead.
type api struct {
	*decidetest.API
	bind func(ctx context.Context) error

	mu     sync.Mutex // guards what follows
	caller string     // of the last Binding, by its annotation
}

// Bind implements decide.API.
func (a *api) Bind(ctx context.Context, b *v1.Binding) error {
	a.mu.Lock()
	a.caller = b.Annotations[v1alpha1.CallerAnnotation]
	a.mu.Unlock()
	if a.bind != nil {
		return a.bind(ctx)
	}
	return nil
}

func ref(p *v1.Pod) ledger.PodRef {
	return ledger.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// newPod returns a pod that asks for a whole CPU.
func newPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
		Spec: v1.PodSpec{
			SchedulerName: "scheduler",
			Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
			}}},
		},
	}
}

// onA is a gang of pods on node a.
func onA(caller string, pods ...*v1.Pod) *reserve.Request {
	g := &reserve.Request{Scheduler: "scheduler", Caller: caller, Mode: ledger.AllOrNothing, Fingerprint: "f"}
	for _, p := range pods {
		g.Pods = append(g.Pods, reserve.Pod{Ref: ref(p), Node: "a"})
	}
	return g
}
