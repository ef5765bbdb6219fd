package arbiter

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/globalreserve/globalreserve/pkg/arbiter/question"
	"github.com/globalreserve/globalreserve/pkg/arbiter/steering"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
)

// Options are what an Arbiter works with. All fields are required that do not say
// otherwise.
type Options struct {
	Ledger   *GatedLedger
	Pods     *cluster.Pods
	Question *question.Maker
	API      API
	Steering *steering.Steering
	Policy   *policy.Store
	Metrics  *metrics.Metrics
	// Store keeps durable reservations. Serving reports whether it can be used: the
	// cluster knows the kind Reservation. ReleaseSlots writes to an object that slots
	// are given back, so that a restart does not forget it, and then ends them in the
	// ledger.
	Store        *store.Store
	Serving      func() bool
	ReleaseSlots func(ctx context.Context, namespace, name string, slots []string) error
	Log          logrus.FieldLogger
	// BindTimeout is after how long callers get an answer whatever happens; 0 means
	// 8s. It must lie below the callers' own timeout, and one request to the API
	// server may take a third of it.
	BindTimeout time.Duration
	// Settle is after how long no request can still be waiting in the API server;
	// 0 means 90s. It must not lie below the API server's --request-timeout.
	Settle time.Duration
	// StoreTimeout is how long a write of a Reservation is tried before its caller gets
	// an answer, and how long one waits for another that writes the same object; 0
	// means 8s. StoreSettle is Settle for these writes, which tell the API server to
	// give up on them after a few seconds; 0 means 15s.
	StoreTimeout, StoreSettle time.Duration
	// MaxInFlight bounds the binds whose outcome is not known; 0 means 4096.
	MaxInFlight int
	// Grace is how long a Binding allowed at the API server has to show up before it is
	// withdrawn; 0 means 3s.
	Grace time.Duration
	// CreateGrace is how long an allowed pod has to show up, and an allowed Binding of a
	// pod that cannot be patched; 0 means 45s. It must lie above the time after which the
	// API server abandons the creation of an object: 34s (kubernetes
	// staging/src/k8s.io/apiserver/pkg/endpoints/handlers, requestTimeoutUpperBound), and
	// what etcd may take for a write it has begun.
	CreateGrace time.Duration
	// MaxPending bounds the Bindings and pods allowed whose fate is not known; 0 means 8192.
	MaxPending int
}

const (
	defaultTimeout     = 8 * time.Second
	defaultSettle      = 90 * time.Second
	defaultStoreSettle = 15 * time.Second
	defaultMaxInFlight = 4096
	defaultGrace       = 3 * time.Second
	defaultCreateGrace = 45 * time.Second
	defaultMaxPending  = 8192
	maxPreemptors      = 4096
)

// RequestTimeout returns how long one request to the API server may take within
// a bind that may take timeout: there is time for a repeat and a re-read.
func RequestTimeout(timeout time.Duration) time.Duration { return timeout / 3 }

func (o *Options) setDefaults() error {
	if o.Ledger == nil || o.Pods == nil || o.Question == nil || o.API == nil || o.Steering == nil ||
		o.Policy == nil || o.Metrics == nil || o.Log == nil ||
		o.Store == nil || o.Serving == nil || o.ReleaseSlots == nil {
		return errors.New("arbiter: Options.Ledger, Pods, Question, API, Steering, Policy, Metrics, Store, Serving, ReleaseSlots and Log are required")
	}
	if min(o.BindTimeout, o.Settle, o.StoreTimeout, o.StoreSettle, o.Grace, o.CreateGrace) < 0 || min(o.MaxInFlight, o.MaxPending) < 0 {
		return errors.New("arbiter: no duration and no bound of Options may be negative")
	}
	o.BindTimeout = cmp.Or(o.BindTimeout, defaultTimeout)
	o.Settle = cmp.Or(o.Settle, defaultSettle)
	o.StoreTimeout = cmp.Or(o.StoreTimeout, defaultTimeout)
	o.StoreSettle = cmp.Or(o.StoreSettle, defaultStoreSettle)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, defaultMaxInFlight)
	o.Grace = cmp.Or(o.Grace, defaultGrace)
	o.CreateGrace = cmp.Or(o.CreateGrace, defaultCreateGrace)
	o.MaxPending = cmp.Or(o.MaxPending, defaultMaxPending)
	return nil
}

// Arbiter decides; see the package comment. Make one with New and end it with
// Stop.
type Arbiter struct {
	o          Options
	pods       *pods
	preemptors *preemptors
	pending    pendings
	writers    *writers

	ctx    context.Context // of all flights and writes; ends with Stop
	cancel context.CancelFunc
	wg     sync.WaitGroup // the goroutines of flights, and of writes after their answer

	// mu guards the rest.
	mu      sync.Mutex
	stopped bool
	flights map[flightKey]*flight
}

// New returns an Arbiter. It starts nothing.
func New(o Options) (*Arbiter, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Arbiter{
		o: o, ctx: ctx, cancel: cancel, flights: map[flightKey]*flight{}, preemptors: newPreemptors(maxPreemptors),
		pods: newPods(&o), pending: newPendings(), writers: newWriters(o.StoreTimeout, ctx.Done()),
	}, nil
}

func newPods(o *Options) *pods {
	return &pods{
		cached: o.Pods, api: o.API, ledger: o.Ledger.Observer, timeout: RequestTimeout(o.BindTimeout), known: lru.New(knownPods),
		observe: func(info *cluster.Pod) { o.Ledger.ObservePod(o.Question.Observation(info)) },
	}
}

// Settled is told of a pod that is bound, or gone: it does not wait any more.
func (a *Arbiter) Settled(pod types.UID) {
	a.preemptors.withdraw(pod)
	a.o.Steering.Settled(pod)
}
