package rest

import (
	"context"
	"crypto/rand"
	_ "embed" // for openapi.yaml
	"net/http"
	"sync/atomic"

	"github.com/julienschmidt/httprouter"
	"golang.org/x/sync/semaphore"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// Options are what an API works with. All fields are required but Limits.
type Options struct {
	Arbiter *arbiter.Arbiter
	Ledger  *ledger.Ledger
	Metrics *metrics.Metrics
	// Done ends all streams when it is closed, as the server stops.
	Done   <-chan struct{}
	Limits Limits
}

// API serves the routes, and is a reserver.Reserver. Make one with New.
type API struct {
	arbiter *arbiter.Arbiter
	ledger  *ledger.Ledger
	metrics *metrics.Metrics
	done    <-chan struct{}
	limits  Limits

	instance string              // tells this run of the server from others
	bodies   *semaphore.Weighted // bytes of bodies being read
	reads    *semaphore.Weighted // large answers being built
	watchers atomic.Int64
	replays  *replays
	calls    *calls // of this process
}

// New returns an API.
func New(o Options) *API {
	limits := o.Limits.withDefaults()
	return &API{
		arbiter: o.Arbiter, ledger: o.Ledger, metrics: o.Metrics, done: o.Done, limits: limits,
		instance: rand.Text()[:10],
		calls:    newCalls(),

		bodies:  semaphore.NewWeighted(limits.BodyBudget),
		reads:   semaphore.NewWeighted(limits.MaxReads),
		replays: newReplays(limits.ReplayAge, limits.ReplayCost),
	}
}

// Stop ends the watches of this process and waits for its other calls.
func (a *API) Stop() { a.calls.stop() }

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
