package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/autoscaling"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/dra"
	"github.com/globalreserve/globalreserve/pkg/extendeddevices"
	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/http/observe"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/kube/election/forward"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/limits"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reservations/deletedpods"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
	"github.com/globalreserve/globalreserve/pkg/version"
)

// App is one server. Make it with New, then Start and Stop it once, or Serve.
type App struct {
	options Options
	log     *logrus.Logger

	ledger       *gates.GatedLedger
	metrics      *metrics.Metrics
	policies     *policy.Store
	watcher      *policy.Watcher // nil without a policy file
	events       events.EventBroadcaster
	recorder     events.EventRecorder
	cache        *cluster.Cache
	comparer     *cluster.Comparer
	question     *placement.Builder
	arbiter      *decide.Arbiter
	reserve      *reserve.Arbiter
	observer     *observe.Observer // nil on a server that decides
	waiting      *requeue.Pods
	objects      *store.Store
	definitions  *informer.Definitions
	reservations *reservations.Controller
	devices      *extendeddevices.Controller
	kinds        *kinds.Table // of gangs, as they were at the start
	gangs        *gangs.Gangs
	claims       *dra.Controller
	limits       *limits.Controller
	protector    *autoscaling.Protector
	provisioner  *autoscaling.Provisioner
	holder       *autoscaling.Holder
	keeper       *deletedpods.Keeper
	elector      *election.Elector
	forwarder    *forward.Forwarder
	// mayFollow is open when pods and nodes are to be followed: another server leads, or this one takes over.
	// caughtUp is open when the ledger has everything that was written before this one took over.
	mayFollow, caughtUp *informer.Latch

	checks *auth.Checks
	known  http.Handler // serves callers that are known
	intake *httpjson.Intake
	inside http.Handler // serves callers in this process
	health *health
	// listeners are all ports, in the order they are served on. They stop in reverse.
	listeners []*httpServer
	page      *httpServer     // nil where the page is not served
	secure    *secureServer   // nil without TLS
	peers     *httpServer     // nil where other servers cannot reach this one
	streaming context.Context // ends when watchers have to go
	endStream context.CancelFunc
	// base, electing and serving run from the start, account from when this server decides. Stop has the order in which
	// they end.
	base, electing, account, serving *parts
	// stopping is Stop's context, within which what is under way is finished.
	stopping atomic.Pointer[context.Context]
}

// Start begins to serve. The server refuses decisions until it has read all
// nodes and pods (WaitReady). An error means that nothing was left running.
func (a *App) Start(ctx context.Context) error {
	if err := a.open(); err != nil {
		a.events.Shutdown() // it has run since New
		return err
	}
	if a.options.Observe {
		a.startObserving(ctx)
	} else {
		a.base.start(ctx, a.baseParts()...)
		a.electing.start(ctx, part{"election", a.elector.Run})
		a.serving.start(ctx, a.servingParts()...)
	}
	fields := logrus.Fields{"version": version.Get().String(), "memoryLimit": debug.SetMemoryLimit(-1)}
	for _, s := range a.listeners {
		fields[s.key] = s.listensAt()
	}
	a.log.WithFields(fields).Info("serving")
	return nil
}

// takeOver makes the account, once no other server can write any more. led is how long ago another server was last
// known to decide.
func (a *App) takeOver(ctx context.Context, led time.Duration) error {
	undecided := a.ledger.Clock.Now().Add(-led)
	warm := a.mayFollow.IsOpen()
	a.ledger.Advance(firstRevision())
	a.mayFollow.Open()
	a.account.start(ctx, a.accountParts()...)
	// A pod that an object names, and that is not there later, is gone.
	err := errors.Join(a.devices.Adopted.Wait(ctx), a.reservations.Listed.Wait(ctx), a.cache.WaitForSync(ctx))
	if err == nil && warm {
		err = a.cache.CatchUp(ctx)
	}
	if err != nil {
		return err
	}
	a.caughtUp.Open()
	if err := a.waitComplete(ctx); err != nil {
		return err
	}
	a.limits.Update() // percentages are of all nodes
	a.takeOverGangs()
	if kept := a.keeper.TakeOver(ctx, undecided); kept > 0 {
		a.log.WithField("pods", kept).Info("the capacity of pods is kept that were deleted while no server decided")
	}
	return nil
}

// resume brings the account up to date, which was kept while nobody decided.
// What was kept for gangs may have ended meanwhile.
func (a *App) resume(ctx context.Context) error {
	if err := a.cache.CatchUp(ctx); err != nil {
		return err
	}
	a.takeOverGangs()
	return nil
}

func (a *App) takeOverGangs() {
	if count := a.arbiter.TakeOverGangs(); count > 0 {
		a.log.WithField("gangs", count).
			Info("capacity is kept for the rest of gangs that started before this server decided, or decided again")
	}
}

// baseParts run whichever server decides, in the order they are started; they are stopped in reverse.
func (a *App) baseParts() []part {
	list := []part{{"events", a.recordEvents}, {"definitions of kinds", a.definitions.Run}}
	if a.watcher != nil {
		list = append(list, part{"policy file", a.watcher.Run})
	}
	return append(list, part{"pods and nodes", a.followCluster},
		part{"gangs", a.followGangs}, part{"ages of watches", a.watchAges},
		part{"other servers", a.forwarder.Run})
}

// accountParts keep the account and act on it.
func (a *App) accountParts() []part {
	return []part{
		{"expiry", func(ctx context.Context) error {
			return reservations.Expire(ctx, a.ledger.Observer(), a.ledger.Clock, a.log)
		}},
		{"waiting pods", a.waiting.Run},
		{"deleted pods", a.keeper.Run},
		{"limits", a.limits.Run},
		{"reservations", a.reservations.Run},
		{"devices", a.devices.Run},
		{"resource claims", a.claims.Run},
		{"comparer", a.comparer.Run},
		{"gangs that start", a.arbiter.WatchGangs},
		{"nodes that autoscalers keep", a.protector.Run},
		{"requests for nodes", a.provisioner.Run},
		{"pods that no node helps", a.holder.Run},
		{"arbiter", a.arbitrate},
	}
}

// servingParts take requests.
func (a *App) servingParts() []part {
	var list []part
	if a.secure != nil {
		list = append(list, part{"files of TLS", a.secure.followFiles})
	}
	for _, s := range a.listeners {
		list = append(list, part{s.name, func(ctx context.Context) error { return s.run(ctx, a.draining) }})
	}
	return list
}

// followCluster watches pods and nodes. A server that leads from its start lists them when no other server
// writes any more, and so need not find out how far its watches are.
func (a *App) followCluster(ctx context.Context) error {
	if a.mayFollow.Wait(ctx) == nil {
		return a.cache.Run(ctx)
	}
	return nil // stopping
}

// followGangs watches the objects of gangs. A server that stands by does so, too: there may be many of them, and what
// is kept for the rest of gangs that have started must not wait for a list.
func (a *App) followGangs(ctx context.Context) error {
	if a.mayFollow.Wait(ctx) == nil {
		return a.gangs.Run(ctx)
	}
	return nil // stopping
}

// arbitrate settles what the webhook has allowed, and ends the binds under way in the end. The writes of gangs end
// after that: a gang may wait for binds.
func (a *App) arbitrate(ctx context.Context) error {
	defer a.reserve.Stop()
	if a.secure != nil || a.peers != nil {
		_ = a.arbiter.Run(ctx) // it has no errors
	}
	<-ctx.Done()
	return a.arbiter.Stop(a.draining())
}

// open reads the files and opens the ports. An error leaves nothing behind.
func (a *App) open() (err error) {
	defer func() {
		if err != nil {
			a.closePorts()
		}
	}()
	if a.secure != nil {
		if err := a.secure.readFiles(); err != nil {
			return err
		}
		if a.page != nil && !isLocal(a.options.UIAddress) {
			a.page.server.TLSConfig = a.secure.server.TLSConfig.Clone() // it shows the same certificate
		}
	}
	if a.watcher != nil {
		if err := a.watcher.Load(); err != nil {
			return fmt.Errorf("the policy file cannot be used: %w", err)
		}
	}
	for _, s := range a.listeners {
		if err := s.listen(); err != nil {
			return err
		}
	}
	return a.advertise()
}

func (a *App) closePorts() {
	for _, s := range a.listeners {
		s.close()
	}
}

// WaitReady returns when this server decides, for which it has to be elected and to have read all nodes, pods,
// reservations and devices; or when ctx ends.
func (a *App) WaitReady(ctx context.Context) error {
	wait := a.elector.Wait
	if a.options.Observe {
		wait = a.caughtUp.Wait
	}
	if err := wait(ctx); err != nil {
		return err
	}
	a.log.WithFields(logrus.Fields{"revision": a.ledger.Revision(), "nodes": a.ledger.Stats().Nodes}).
		Info("ready: all nodes, pods, reservations and devices are in the ledger")
	return nil
}

// Wait returns nil when ctx ends, or why the server cannot go on serving, which it does not recover from: stop it then.
func (a *App) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.base.failed:
		return err
	case err := <-a.electing.failed:
		return err
	case err := <-a.account.failed:
		return err
	case err := <-a.serving.failed:
		return err
	}
}

// Stop ends the server. It passes new requests on to the next leader, for which it gives up the Lease as soon as all
// earlier ones are done. It goes on doing so for the time of --shutdown-delay, so that callers have another server to
// go to when it listens no more. All of that ends with ctx at the latest.
func (a *App) Stop(ctx context.Context) error {
	a.health.stopping.Store(true)
	a.endStream()
	a.stopping.Store(&ctx)
	delay := time.After(a.options.ShutdownDelay)
	err := errors.Join(a.forwarder.HandOver(ctx), a.account.stop(), a.electing.stop())
	select {
	case <-delay:
	case <-ctx.Done():
	}
	err = errors.Join(err, a.serving.stop(), a.base.stop())
	a.closePorts()
	return err
}

// draining is the context within which what is under way is finished.
func (a *App) draining() context.Context { return *a.stopping.Load() }

// Run serves until ctx ends or serving fails, and stops gracefully.
func Run(ctx context.Context, o Options, out io.Writer) error {
	if err := o.Validate(); err != nil {
		return err
	}
	log, err := newLogger(o.LogLevel, o.LogFormat, out)
	if err != nil {
		return err
	}
	routeKlog(log)
	tracer, err := tracing.Open(ctx, o.TracingConfigFile, log)
	if err != nil {
		return err
	}
	defer flush(ctx, tracer, log)
	clients, err := clientsOf(o.Kubeconfig, tracer)
	if err != nil {
		return err
	}
	o.Tracer = tracer
	a, err := New(o, clients, out)
	if err != nil {
		return err
	}
	return a.Serve(ctx)
}

// flushTimeout is how long a stop waits for the collector of spans.
const flushTimeout = 2 * time.Second

// flush sends what was traced last.
func flush(ctx context.Context, tracer tracing.Tracer, log logrus.FieldLogger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := tracer.Shutdown(ctx); err != nil {
		log.WithError(err).Warn("the latest spans were not sent")
	}
}

// Serve starts the server, serves until ctx ends or serving fails, and stops gracefully.
func (a *App) Serve(ctx context.Context) error {
	if err := a.Start(ctx); err != nil {
		return err
	}
	waiting, stopWaiting := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { _ = a.WaitReady(waiting) }) // an error is the stop itself
	failure := a.Wait(ctx)
	stopWaiting()
	background.Wait()
	a.log.Info("stopping: finishing binds under way")
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.options.ShutdownTimeout)
	defer cancel()
	err := errors.Join(failure, a.Stop(stopCtx))
	a.log.Info("stopped")
	return err
}
