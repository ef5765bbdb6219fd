package decide

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/utils/lru"

	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/dra"
	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
)

// Options are what an Arbiter works with. A field is required unless its comment says otherwise.
type Options struct {
	Ledger   *gates.GatedLedger
	Pods     *cluster.Pods
	Question *placement.Builder
	API      API
	// Waiting remembers the pods that wait, and brings them to capacity.
	Waiting *requeue.Pods
	Policy  *policy.Store
	Metrics *metrics.Metrics
	Log     logrus.FieldLogger
	// ResourceClaims decides which DRA devices a ResourceClaim gets.
	ResourceClaims *dra.Controller
	// Gangs knows which pods are useful only together, and how many of them.
	Gangs *gangs.Gangs
	Nodes *cluster.Nodes
	// GangEvents are about gangs that have started and are not whole.
	GangEvents *informer.Events
	// RedirectEvents are about Bindings that go to another node than they name, and those that the server sends itself.
	RedirectEvents *informer.Events
	// Rights check which caller may act for which scheduler.
	Rights *auth.Checks
	// Term is the term in which this server decides; whatever it sends carries it.
	Term *election.OwnTerm
	// BindTimeout is the time after which callers get an answer in any case. It must lie below the callers' own
	// timeout, and one request to the API server may take a third of it.
	BindTimeout time.Duration
	// MaxInFlight bounds the binds whose outcome is not known; 0 means 4096. MaxAllowances bounds what was
	// allowed at the API server and whose fate is not known; 0 means 8192.
	MaxInFlight, MaxAllowances int
	// AdmissionWarns makes the webhook only warn: what it would refuse goes ahead.
	AdmissionWarns bool
}

const (
	// bindSettle is after how long no Binding can still be waiting in the API server. It
	// must not lie below the API server's --request-timeout.
	bindSettle = 90 * time.Second
	// grace is how long a Binding allowed at the API server has to show up before it is withdrawn.
	grace = 3 * time.Second
	// createGrace is how long an allowed creation of a pod has to show up, and an allowed Binding of a pod that cannot
	// be patched. After 34s the API server abandons the creation of an object (kubernetes
	// staging/src/k8s.io/apiserver/pkg/endpoints/handlers, requestTimeoutUpperBound). createGrace must be longer than
	// that and the time that etcd may take for a write it has begun.
	createGrace = 45 * time.Second

	defaultMaxInFlight   = 4096
	defaultMaxAllowances = 8192
)

// RequestTimeout returns how long one request to the API server may take within
// a bind that may take timeout: there is time for a repeat and a re-read.
func RequestTimeout(timeout time.Duration) time.Duration { return timeout / 3 }

// Arbiter decides; see the package comment. Make one with New and end it with Stop.
type Arbiter struct {
	o          Options
	pods       *pods
	allowances allowances
	repeats    repeats
	// bursting is how many creations wait for others, see awaitCreated.
	bursting atomic.Int32
	gangs    *gangKeeper

	ctx    context.Context // of all flights; ends with Stop
	cancel context.CancelFunc
	wg     sync.WaitGroup // the goroutines of flights, and the last look at allowances
	turns  *turns         // of the Bindings at the API server

	// mu guards the rest.
	mu      sync.Mutex
	stopped bool
	flights map[flightKey]*flight
	// finishing counts the flights that no scheduler has asked for, and finishingIn those of each namespace.
	finishing   int
	finishingIn map[string]int
}

// New returns an Arbiter. It starts nothing.
func New(o Options) *Arbiter {
	o.MaxInFlight = cmp.Or(o.MaxInFlight, defaultMaxInFlight)
	o.MaxAllowances = cmp.Or(o.MaxAllowances, defaultMaxAllowances)
	ctx, cancel := context.WithCancel(context.Background())
	a := &Arbiter{
		o: o, ctx: ctx, cancel: cancel, flights: map[flightKey]*flight{}, finishingIn: map[string]int{}, turns: newTurns(),
		allowances: newAllowances(), repeats: newRepeats(),
	}
	a.pods = &pods{o: &a.o, known: lru.New(knownPods)}
	a.gangs = newGangKeeper(a)
	return a
}

// Undecided returns why nothing can be decided now, "" where decisions can be made.
func (a *Arbiter) Undecided() string { return a.o.Ledger.Undecided() }

// Reader reads pods as decisions need them.
func (a *Arbiter) Reader() cluster.Reader { return a.o.Question.Reader }

// TakeOverGangs keeps capacity for the rest of gangs that had started when another server decided, or when
// this one did last. It is called before anything is decided, and returns the number of these gangs.
func (a *Arbiter) TakeOverGangs() int { return a.gangs.takeOver() }

// LookAgain says that pods which did not fit may fit now, for a reason that the ledger has no event for: taints of
// nodes, limits, resources that are left to DRA. Gangs that wait are looked at again.
func (a *Arbiter) LookAgain() { a.gangs.others.Add(1) }
