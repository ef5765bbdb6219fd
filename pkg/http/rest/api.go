package rest

import (
	"context"
	"crypto/rand"
	_ "embed"
	"net/http"
	"sync"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/drain"
	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/dra"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// Options are what an API works with. All fields are required.
type Options struct {
	Arbiter *decide.Arbiter
	// Reserve decides on /reserve, /unreserve and /v1/whatif.
	Reserve *reserve.Arbiter
	// Drains plans where the pods of nodes go that are drained.
	Drains  *drain.Planner
	Waiting *requeue.Pods
	Ledger  ledger.Reader
	Clock   *steady.Clock // of the ledger's deadlines
	Metrics *metrics.Metrics
	// Serving ends as the server stops, and all streams with it.
	Serving context.Context
	// Intake is what requests wait for.
	Intake *httpjson.Intake
	// About says which server's account it is, and which parts of it are complete.
	About func() reserver.DumpAnswer
	// Diff compares the account with what the API server lists; see debugger.Comparer.
	Diff func(ctx context.Context) (*reserver.DiffAnswer, error)
	// Rights say who may see the names of pods, reservations and claims of which namespace.
	Rights *auth.Checks
	// PendingReservations are the Reservation objects that wait for capacity, by namespace and name.
	PendingReservations func() []reservations.Pending
	// DrainReservations are those that a drain keeps places by, by namespace and name.
	DrainReservations func() []reservations.Drained
	// ResourceClaims says who has which DRA device.
	ResourceClaims *dra.Controller
	// ReserveRefusal is why /reserve grants nothing to anybody, or "".
	ReserveRefusal string
}

// API serves the routes. Make one with New.
type API struct {
	o         Options
	comparing sync.Mutex // held while Options.Diff is called

	instance string // distinguishes this run of the server from others
	watchers *httpjson.Shares
	replays  *replays
	// These are maxRevisionWait, heartbeatEvery and maxWatchWrite, but for tests.
	revisionWait, heartbeat, watchWrite time.Duration
}

// New returns an API.
func New(o Options) *API {
	return &API{
		o: o, instance: rand.Text()[:10],
		revisionWait: maxRevisionWait, heartbeat: heartbeatEvery, watchWrite: maxWatchWrite,
		watchers: httpjson.NewShares(maxWatchers, maxWatchers/2, 0),
		replays:  newReplays(replayAge, replayCost),
	}
}

// route is one thing the API serves. verb is its name in the metrics.
type route struct {
	method, path, verb string
	handle             func(http.ResponseWriter, *http.Request) error
}

func (a *API) routes() []route {
	return []route{
		{http.MethodPost, "/reserve", "reserve", a.serveReserve(verbReserve)},
		{http.MethodPost, "/unreserve", "unreserve", a.serveReserve(verbUnreserve)},
		{http.MethodPost, "/v1/whatif", "whatif", a.whatIf},
		{http.MethodPost, "/v1/drain/plan", "drainplan", a.planDrain},
		{http.MethodGet, "/v1/revision", "revision", a.read(a.revision)},
		{http.MethodGet, "/v1/nodes", "nodes", a.read(a.nodes, "overcommitted", "pool", "labelSelector", "limit",
			"continue")},
		{http.MethodGet, "/v1/nodes/:name", "node", a.read(a.node)},
		{http.MethodGet, "/v1/allocations", "allocations", a.read(a.allocations, "namespace", "pod", "node", "scheduler",
			"state", "limit", "continue")},
		{http.MethodGet, "/v1/reservations", "reservations", a.read(a.reservations, "namespace", "name", "node", "scheduler",
			"pod", "limit", "continue")},
		{http.MethodGet, "/v1/gangs", "gangs", a.read(a.gangs, "namespace", "state", "limit", "continue")},
		{http.MethodGet, "/v1/refusals", "refusals", a.read(a.refusals, "namespace", "pod", "scheduler", "reason", "path",
			"limit", "after")},
		{http.MethodGet, "/v1/pending", "pending", a.read(a.pending, "namespace", "scheduler", "waits", "limit", "continue")},
		{http.MethodGet, "/v1/explain", "explain", a.read(a.explain, "namespace", "pod")},
		{http.MethodGet, "/v1/watch", "watch", a.watch},
		{http.MethodGet, "/debug/ledger", "dump", a.read(a.dump)},
		{http.MethodGet, "/debug/diff", "diff", a.diff},
		{http.MethodGet, "/openapi.yaml", "openapi", serveOpenAPI},
	}
}

// Register adds the routes to router.
func (a *API) Register(router *httprouter.Router) {
	for _, r := range a.routes() {
		router.Handler(r.method, r.path, httpjson.Handle(r.verb, a.o.Metrics.ObserveRequest, r.handle))
	}
}

//go:embed openapi.yaml
var openAPI []byte

func serveOpenAPI(w http.ResponseWriter, r *http.Request) error {
	if _, err := readQuery(r); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(openAPI) // an error means that the client has gone
	return nil
}

// read makes a handler of what answers a query, which may have the known parameters.
func (a *API) read(build func(*query) (any, error), known ...string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		q, err := readQuery(r, known...)
		if err != nil {
			return err
		}
		q.reader = a.readerOf(r.Context())
		return a.answer(w, r, func() (any, error) {
			answer, err := build(q)
			if err == nil && q.err != nil {
				err = httpjson.Errorf(statusOf(q.err), "%s", q.err)
			}
			return answer, err
		})
	}
}

// answer waits for a turn, builds the answer in it, and sends that. The turn is
// over before anything is sent: a client that does not read must not keep others waiting.
func (a *API) answer(w http.ResponseWriter, r *http.Request, build func() (any, error)) error {
	encode := func() (answer httpjson.Answer, err error) {
		leave, err := a.o.Intake.Work(r.Context(), a.o.Intake.Caller(r))
		if err != nil {
			return answer, err
		}
		defer leave()
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
	return a.o.Intake.Send(w, r, answer)
}

var errClientGone = httpjson.Errorf(http.StatusServiceUnavailable, "the client has gone")
