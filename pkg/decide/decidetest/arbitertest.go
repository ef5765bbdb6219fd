// Package decidetest makes Arbiters for the tests of packages that use one: all parts are
// the real ones, on an API server in memory.
package decidetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/dra"
	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/http/auth/authtest"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/requeue/requeuetest"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// World is what surrounds an Arbiter. What is not set before New starts out empty.
type World struct {
	Ledger   *ledger.Ledger
	Clock    *steady.Clock
	Pods     *cluster.Pods // what the watch has brought
	Nodes    *cluster.Nodes
	Matcher  *placement.Matcher
	Question *placement.Builder
	Metrics  *metrics.Metrics
	Waiting  *requeue.Pods
	Writes   *requeuetest.Writes // to pods that wait
	// ResourceClaims is a controller that is not running.
	ResourceClaims *dra.Controller
	API            *API
	Store          *storetest.Server
	Log            *logrus.Logger
	Logs           *logtest.Hook
	// NoKind: the cluster does not know the kind Reservation.
	NoKind bool
	// Undecided returns why nothing can be decided, or "", as at first.
	Undecided func() string
	// Policy is the one in force, at first the default.
	Policy *policy.Store
}

// gated is the ledger behind its gates.
func (w *World) gated() *gates.GatedLedger {
	return gates.NewGatedLedger(w.Ledger, w.Clock, gates.New(w.Policy), func() string { return w.Undecided() })
}

const bindTimeout = 8 * time.Second

// TTL is how long reservations last that do not say.
const TTL = time.Minute

// NewWorld returns the surroundings of an Arbiter that decides by a ledger.
func NewWorld(l *ledger.Ledger) *World {
	log, hook := logtest.NewNullLogger()
	w := &World{
		Ledger: l, Clock: steady.New(time.Now, steady.Uptime), Pods: cluster.NewPods(), Nodes: cluster.NewNodes(),
		Matcher: &placement.Matcher{},
		Metrics: metrics.New(), Policy: policy.NewStore(policy.Default(), TTL),
		API: &API{pods: map[types.NamespacedName]*v1.Pod{}}, Store: storetest.New(l), Log: log, Logs: hook,
		Undecided: func() string { return "" },
	}
	w.Question = &placement.Builder{
		Reader: cluster.Reader{Table: l.Table(), Gangs: ownGangs()}, Matcher: w.Matcher,
		Devices: func(*cluster.Pod) *ledger.DeviceRequest { return nil },
	}
	w.ResourceClaims = dra.New(dra.Options{Client: fake.NewClientset(), Log: log})
	w.Waiting, w.Writes = requeuetest.New(w.gated(), w.Question, w.Pods, w.Nodes)
	return w
}

// New returns an Arbiter. The caller stops it. change, if not nil, is called with the options before.
func (w *World) New(t testing.TB, change func(*decide.Options)) *decide.Arbiter {
	t.Helper()
	o := decide.Options{
		Ledger: w.gated(), Pods: w.Pods, Question: w.Question,
		API: w.API, Metrics: w.Metrics, Log: w.Log, BindTimeout: bindTimeout,
		Policy:  w.Policy,
		Waiting: w.Waiting,
		Rights:  authtest.All(), Term: election.NewOwnTerm(0),
		Gangs: gangs.New(gangs.Options{
			Pods: w.Pods, Kinds: ownGangs(), OnChanged: func(kinds.Key) {}, Log: w.Log,
		}),
		ResourceClaims: w.ResourceClaims,
		GangEvents:     informer.NewEvents(w.Writes, 1000, 1000),
		RedirectEvents: informer.NewEvents(w.Writes, 1000, 1000),
		Nodes:          w.Nodes,
	}
	if change != nil {
		change(&o)
	}
	return decide.New(o)
}

// NewReserve returns what decides on /reserve beside an Arbiter that New has made. The caller stops it. change is as
// in New.
func (w *World) NewReserve(t testing.TB, a *decide.Arbiter, change func(*reserve.Options)) *reserve.Arbiter {
	t.Helper()
	o := reserve.Options{
		Arbiter: a, Ledger: w.gated(), Question: w.Question, Waiting: w.Waiting, Policy: w.Policy, Metrics: w.Metrics,
		Log: w.Log, Store: w.Store.Store(t), Serving: func() bool { return !w.NoKind }, ReleaseSlots: w.Store.ReleaseSlots,
		ToGiveBack: w.Store.ToGiveBack,
		Rights:     authtest.All(), ReadTimeout: bindTimeout,
	}
	if change != nil {
		change(&o)
	}
	return reserve.New(o)
}

// ownGangs are the gangs whose pods say all there is to know.
func ownGangs() *kinds.Table {
	table, err := kinds.New(kinds.Default()[:1])
	if err != nil {
		panic(err) // the defaults are right
	}
	return table
}

// Bring is what the watch does with a pod.
func (w *World) Bring(pod *v1.Pod) *cluster.Pod {
	r := w.Question.Reader.Compact(pod)
	w.Pods.Put(r)
	return r
}

// API has pods. It does not change them.
type API struct {
	mu   sync.Mutex // guards what follows
	pods map[types.NamespacedName]*v1.Pod
	err  error // of all reads
	// reads counts the reads, busy those under way, and most is the most there ever were.
	reads, busy, most int
	delay             time.Duration
}

// Put makes a pod be there.
func (a *API) Put(pod *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod
}

// Answer makes reads take a while, and end with an error if it is not nil.
func (a *API) Answer(delay time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delay, a.err = delay, err
}

// Reads returns how many reads there have been, and the most at one time.
func (a *API) Reads() (count, most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reads, a.most
}

// IsOn implements decide.API.
func (a *API) IsOn(context.Context, string, string, labels.Selector) (bool, error) { return false, nil }

// Get implements decide.API.
func (a *API) Get(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	a.mu.Lock()
	a.reads++
	a.busy++
	a.most = max(a.most, a.busy)
	delay := a.delay
	a.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy--
	pod := a.pods[types.NamespacedName{Namespace: namespace, Name: name}]
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case a.err != nil:
		return nil, a.err
	case pod == nil:
		return nil, apierrors.NewNotFound(v1.Resource("pods"), name)
	default:
		return pod.DeepCopy(), nil
	}
}

// Bind implements decide.API.
func (a *API) Bind(_ context.Context, b *v1.Binding) error {
	return apierrors.NewForbidden(v1.Resource("pods/binding"), b.Name, nil)
}

// Annotate implements decide.API.
func (a *API) Annotate(_ context.Context, pod ledger.PodRef, _, _ string) (*v1.Pod, error) {
	return nil, apierrors.NewForbidden(v1.Resource("pods"), pod.Name, nil)
}

// Self implements decide.API.
func (a *API) Self(context.Context) (string, error) { return "server", nil }
