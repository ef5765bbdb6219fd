package restapi

import (
	"context"
	"crypto/rand"
	_ "embed" // for openapi.yaml
	"net/http"
	"sync/atomic"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// Pods finds pods the API server has. Safe for concurrent use.
type Pods interface {
	Pod(namespace, name string) (*podinfo.Info, bool)
}

// Matcher tells which reservations a pod may use, the one it prefers first.
// Safe for concurrent use.
type Matcher interface {
	Candidates(pod *podinfo.Info) []ledger.HoldRef
}

// Devices says what the claims of devices that pods name ask for. Safe for
// concurrent use.
type Devices interface {
	// Devices returns nil for a pod that names no claims.
	Devices(pod *podinfo.Info) *ledger.DeviceRequest
}

// Metrics is told what was decided. Safe for concurrent use.
type Metrics interface {
	httpjson.Observer
	// ObserveDecision counts one decision on a group; verb and result are fixed words.
	ObserveDecision(verb, scheduler, result string)
	// ObserveConflict counts one pod refused for want of a resource.
	ObserveConflict(scheduler, resource string)
}

// Store keeps Reservation objects in the API server. Each method sends its
// request once; store.Classify tells what an error says of its fate.
// Safe for concurrent use.
type Store interface {
	// Create writes an object and returns it as it was stored.
	Create(ctx context.Context, rsv *v1alpha1.Reservation) (*v1alpha1.Reservation, error)
	// Get reads an object live.
	Get(ctx context.Context, namespace, name string) (*v1alpha1.Reservation, error)
	// Delete deletes the object unless it has another UID by now.
	Delete(ctx context.Context, namespace, name string, uid types.UID) error
	// ReleaseSlots writes to the object that slots are given back, so that a
	// restart does not forget it, and then ends their holds in the ledger.
	ReleaseSlots(ctx context.Context, namespace, name string, slots []string) error
}

// Options are what an API works with.
type Options struct {
	Ledger  *ledger.Ledger
	Pods    Pods
	Metrics Metrics
	Log     logrus.FieldLogger
	// TTL returns how long a reservation lasts; asked is 0 where the scheduler
	// leaves it to the server. An error is answered with 400.
	TTL func(scheduler string, asked time.Duration) (time.Duration, error)
	// Matcher is asked about pending pods; nil: no pod may use any reservation
	// but those kept for it alone.
	Matcher Matcher
	// Devices is nil where no pod may have devices: those with claims are refused.
	Devices Devices
	// Store keeps durable reservations; nil keeps all in memory.
	Store Store
	// Durable reports whether Store can be used: the cluster knows the kind
	// Reservation. nil means always.
	Durable func() bool
	// Clock is what reservations expire by; default is the system's.
	Clock clock.WithTicker
	// Ready returns why nothing can be decided yet, or nothing. It is asked for
	// calls of this process; those by HTTP are kept back before they come here.
	// nil means always ready.
	Ready func() string
	// Done ends all streams when it is closed, as the server stops.
	Done   <-chan struct{}
	Limits Limits
}

// API serves the routes, and is a reserver.Reserver. Make one with New.
type API struct {
	ledger  *ledger.Ledger
	pods    Pods
	metrics Metrics
	log     logrus.FieldLogger
	ttl     func(scheduler string, asked time.Duration) (time.Duration, error)
	clock   clock.WithTicker
	done    <-chan struct{}
	limits  Limits
	store   Store
	matcher Matcher
	devices Devices
	durable func() bool
	ready   func() string

	instance string              // tells this run of the server from others
	bodies   *semaphore.Weighted // bytes of bodies being read
	reads    *semaphore.Weighted // large answers being built
	watchers atomic.Int64
	replays  *replays
	writes   *writes
	calls    *calls // of this process
}

// New returns an API. Ledger, Pods, Metrics, Log and TTL must be set.
func New(o Options) *API {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Durable == nil {
		o.Durable = func() bool { return true }
	}
	if o.Ready == nil {
		o.Ready = func() string { return "" }
	}
	limits := o.Limits.withDefaults()
	return &API{
		store: o.Store, matcher: o.Matcher, devices: o.Devices, durable: o.Durable, ready: o.Ready, writes: newWrites(limits.StoreTimeout),
		ledger: o.Ledger, pods: o.Pods, metrics: o.Metrics, log: o.Log, ttl: o.TTL, clock: o.Clock,
		done: o.Done, limits: limits,
		instance: rand.Text()[:10],
		calls:    newCalls(),

		bodies:  semaphore.NewWeighted(limits.BodyBudget),
		reads:   semaphore.NewWeighted(limits.MaxReads),
		replays: newReplays(limits.ReplayAge, limits.ReplayCost),
	}
}

// Stop ends the watches of this process, waits for its other calls, and ends what
// goes on behind the requests: durable writes whose outcome is not known yet. What
// they leave behind expires. Call it when no HTTP request is under way any more.
func (a *API) Stop() {
	a.calls.stop()
	a.writes.stop()
}

// route is one thing the API serves. verb is its name in the metrics.
type route struct {
	method, path, verb string
	handle             func(http.ResponseWriter, *http.Request, httprouter.Params) error
}

func (a *API) routes() []route {
	return []route{
		{http.MethodPost, "/reserve", "reserve", a.reserve},
		{http.MethodPost, "/unreserve", "unreserve", a.unreserve},
		{http.MethodPost, "/v1/whatif", "whatif", a.whatIf},
		{http.MethodGet, "/v1/revision", "revision", a.revision},
		{http.MethodGet, "/v1/nodes", "nodes", a.nodes},
		{http.MethodGet, "/v1/nodes/:name", "node", a.node},
		{http.MethodGet, "/v1/claims", "claims", a.claims},
		{http.MethodGet, "/v1/reservations", "reservations", a.reservations},
		{http.MethodGet, "/v1/explain", "explain", a.explain},
		{http.MethodGet, "/v1/watch", "watch", a.watch},
		{http.MethodGet, "/openapi.yaml", "openapi", serveOpenAPI},
	}
}

// Register adds the routes to router.
func (a *API) Register(router *httprouter.Router) {
	for _, r := range a.routes() {
		handler := httpjson.Instrument(r.verb, a.metrics, http.HandlerFunc(
			func(w http.ResponseWriter, req *http.Request) {
				if err := r.handle(w, req, httprouter.ParamsFromContext(req.Context())); err != nil {
					httpjson.WriteError(w, err)
				}
			}))
		router.Handler(r.method, r.path, handler)
	}
}

//go:embed openapi.yaml
var openAPI []byte

func serveOpenAPI(w http.ResponseWriter, r *http.Request, _ httprouter.Params) error {
	if err := noQuery(r); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(openAPI) // an error means that the client has gone
	return nil
}

// turn waits until pool has n to spare, but not long. release gives it back.
func (a *API) turn(ctx context.Context, pool *semaphore.Weighted, n int64) (release func(), err error) {
	if pool.TryAcquire(n) {
		return func() { pool.Release(n) }, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.limits.MinRevisionWait)
	defer cancel()
	if err := pool.Acquire(ctx, n); err != nil {
		return nil, errBusy
	}
	return func() { pool.Release(n) }, nil
}

// answer sends what build makes in its turn. The turn is over before anything is
// sent: a client that does not read must not keep others waiting.
func (a *API) answer(w http.ResponseWriter, r *http.Request, build func() (any, error)) error {
	encode := func() (answer httpjson.Answer, err error) {
		release, err := a.turn(r.Context(), a.reads, 1)
		if err != nil {
			return answer, err
		}
		defer release()
		v, err := build()
		if err != nil {
			return answer, err
		}
		return httpjson.Encode(http.StatusOK, v), nil
	}
	answer, err := encode()
	if err != nil {
		return err
	}
	answer.Send(w)
	return nil
}

var errBusy = httpjson.Errorf(http.StatusServiceUnavailable,
	"the server is busy with other large requests: try again in a few seconds")

var errClientGone = httpjson.Errorf(http.StatusServiceUnavailable, "the client has gone")
