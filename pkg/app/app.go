package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/arbiter/matcher"
	"github.com/globalreserve/globalreserve/pkg/arbiter/question"
	"github.com/globalreserve/globalreserve/pkg/arbiter/steering"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/controller"
	"github.com/globalreserve/globalreserve/pkg/deviceclaims"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reservations/deletedpods"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
	"github.com/globalreserve/globalreserve/pkg/server/extender"
	"github.com/globalreserve/globalreserve/pkg/server/rest"
	"github.com/globalreserve/globalreserve/pkg/version"
)

// App is one server. Make it with New, then Start and Stop it once.
type App struct {
	options Options
	log     *logrus.Logger

	ledger   *ledger.Ledger
	metrics  *metrics.Metrics
	policies *policy.Store
	watcher  *policy.Watcher // nil without a policy file
	events   *eventReporter
	cache    *cluster.Cache
	matcher  *matcher.Matcher
	comparer *cluster.Comparer
	question *question.Maker
	arbiter  *arbiter.Arbiter
	expirer  *controller.Expirer
	wakeups  *controller.Wakeups
	// wakesItself is LeaveAlone's.
	wakesItself func(scheduler string) bool
	// claimChanged is OnClaimChanged's.
	claimChanged func(namespace, name string)
	broadcaster  broadcaster
	objects      *store.Store
	reservations *reservations.Controller
	definitions  *follow.Definitions
	devices      *deviceclaims.Controller
	steering     *steering.Steering
	keeper       *deletedpods.Keeper

	api     *rest.API
	health  *health
	server  *httpServer
	secure  *secureServer // nil without TLS
	streams chan struct{} // closed when watchers have to go
	running *parts
	// stopping is Stop's context, within which what is under way is finished.
	stopping atomic.Pointer[context.Context]

	mu        sync.Mutex               // guards what follows
	onMatched []func(namespace string) // NotifyMatched's
}

// New builds a server and starts nothing. Its log goes to out.
func New(o Options, clients Clients, out io.Writer) (*App, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	log, err := newLogger(o.LogLevel, o.LogFormat, out)
	if err != nil {
		return nil, err
	}
	client := clients.Core
	a := &App{
		options: o, log: log, matcher: &matcher.Matcher{}, metrics: metrics.New(), streams: make(chan struct{}), running: newParts(),
		policies: policy.NewStore(policy.Default(), o.ReservationTTL),
		// Revisions grow from the clock, so that one from before a restart is
		// never taken for one the ledger has reached since.
		ledger: ledger.New(ledger.Options{
			FirstRevision: uint64(time.Now().UnixMicro()), IgnoredResources: o.ignoredResources(),
		}),
	}
	a.metrics.RegisterLedger(a.ledgerStats)
	a.broadcaster = newBroadcaster(client)
	a.events = newEventReporter(a.broadcaster, log)
	a.expirer = controller.NewExpirer(a.ledger, log)
	a.buildState(client)
	a.buildReservations(clients)
	a.buildDevices(clients)
	a.question = &question.Maker{Table: a.ledger.Table(), Matcher: a.matcher, Devices: a.devices.Devices}
	a.buildWakeups(client)
	a.buildConsumption(clients)
	if o.PolicyFile != "" {
		a.watcher = policy.NewWatcher(a.policies, policy.WatcherOptions{
			Path: o.PolicyFile, OnReload: a.policyLoaded, OnError: a.policyFailed,
		})
	}
	handler, err := a.buildHandler(client)
	if err != nil {
		return nil, err
	}
	a.server = newHTTPServer(handler, log)
	a.buildWebhook(handler)
	return a, nil
}

func (a *App) buildState(client kubernetes.Interface) {
	a.cache = cluster.New(client, a.ledger, cluster.Options{
		Logger: a.log, OnCatchUp: func(since uint64) { a.wakeups.CatchUp(since) },
		Keep:           func(last *cluster.Pod) (ledger.Hold, func(), bool) { return a.keeper.Keep(last) },
		Devices:        func(pod *cluster.Pod) *ledger.DeviceRequest { return a.devices.Devices(pod) },
		OnDeviceMarks:  func(pod *cluster.Pod) { a.devices.MarksChanged(pod) },
		OnNodesChanged: func() { a.reservations.NodesChanged() },
		OnPodBound:     func(pod *cluster.Pod) { a.settled(pod.Ref.UID) },
		OnPodGone:      func(pod ledger.PodRef) { a.settled(pod.UID) },
		OnPodBypassed: func(pod *cluster.Pod) {
			a.metrics.ObserveBypassedBind(pod.Scheduler)
			a.log.WithFields(logrus.Fields{
				"pod": pod.Ref.String(), "uid": pod.Ref.UID, "node": pod.Node, "scheduler": pod.Scheduler,
			}).Warn("a pod was bound without asking: put its scheduler behind this server")
		},
	})
	a.comparer = cluster.NewComparer(a.cache, client, cluster.ComparerOptions{
		Interval: a.options.CompareInterval, LiveInterval: a.options.FullCompareInterval, Logger: a.log,
		OnDrift: func(kind cluster.Kind, differences int) { a.metrics.SetDrift(string(kind), differences) },
	})
}

func (a *App) buildHandler(client kubernetes.Interface) (http.Handler, error) {
	var err error
	a.arbiter, err = arbiter.New(arbiter.Options{
		Ledger: a.ledger, Pods: a.cache.Pods, Question: a.question, API: arbiter.NewAPI(client), Steering: a.steering,
		Policy: a.policies, Metrics: a.metrics, Undecided: func() string { return a.health.undecided() }, Log: a.log,
		BindTimeout: a.options.BindTimeout,
		Store:       a.objects, Serving: a.reservations.Serving, ReleaseSlots: a.reservations.ReleaseSlots,
	})
	if err != nil {
		return nil, err
	}
	router := httprouter.New()
	router.NotFound = httpjson.NotFound()
	router.MethodNotAllowed = httpjson.MethodNotAllowed()
	router.HandleOPTIONS = false
	extender.New(extender.Options{
		Arbiter: a.arbiter, Ledger: a.ledger, Wakeups: a.wakeups, Metrics: a.metrics, OnRefused: a.newOnRefused(), Log: a.log,
	}).Register(router)
	a.api = rest.New(rest.Options{Arbiter: a.arbiter, Ledger: a.ledger, Metrics: a.metrics, Done: a.streams})
	a.api.Register(router)
	a.health = &health{
		synced:   func() bool { return a.cache.Synced() && a.reservations.Synced() && a.devices.Synced() },
		observer: a.metrics,
	}
	a.health.register(router)
	router.Handler(http.MethodGet, "/metrics", a.metrics.Handler())
	return a.health.gate(router), nil
}

// ledgerStats is the ledger's part of the metrics.
func (a *App) ledgerStats() metrics.LedgerStats {
	stats := a.ledger.Stats()
	claims := map[string]int{ledger.ReservedState: stats.InMemory}
	for _, s := range []ledger.State{ledger.Binding, ledger.Bound} {
		claims[s.String()] = stats.Claims[s]
	}
	return metrics.LedgerStats{
		Claims: claims, ClaimsExpired: stats.InMemoryExpired, Nodes: stats.Nodes, OvercommittedNodes: stats.OvercommittedNodes,
	}
}

func (a *App) policyLoaded(p *policy.Policy) {
	names := make([]string, 0, len(p.Schedulers))
	for i := range p.Schedulers {
		names = append(names, p.Schedulers[i].Name)
	}
	a.metrics.KeepSchedulers(names...)
	a.metrics.PolicyLoaded(time.Now())
	a.log.WithField("file", a.options.PolicyFile).Info("policy in force")
}

func (a *App) policyFailed(err error) {
	a.metrics.PolicyReloadFailed()
	a.log.WithError(err).Error("the policy file could not be put in force")
	a.events.policyFailed(err)
}

// Start begins to serve. The server refuses decisions until it has read all
// nodes and pods (WaitReady). An error means that nothing was left running.
func (a *App) Start(ctx context.Context) error {
	if err := a.open(); err != nil {
		return err
	}
	a.health.hold(a.options.BindTimeout)
	a.running.start(ctx, a.parts()...)
	fields := logrus.Fields{"version": version.Get().String(), "address": a.Addr()}
	if a.secure != nil {
		fields["secureAddress"] = a.SecureAddr()
	}
	a.log.WithFields(fields).Info("serving")
	return nil
}

// parts are all that runs, in the order it is started; it is stopped in reverse.
func (a *App) parts() []part {
	list := []part{
		{"events", a.broadcaster.run},
		{"expiry", a.expirer.Run},
		{"wake-ups", a.wakeups.Run},
		{"steering", a.steering.Run},
		{"deleted pods", a.keeper.Run},
		{"definitions of kinds", a.definitions.Run},
		{"reservations", a.reservations.Run},
		{"devices", a.devices.Run},
		{"pods and nodes", a.followCluster},
		{"comparer", a.comparer.Run},
	}
	if a.watcher != nil {
		list = append(list, part{"policy file", a.watcher.Run})
	}
	list = append(list,
		part{"arbiter", a.arbitrate},
		untilEnd("calls of this process", func() error { a.api.Stop(); return nil }),
		part{"HTTP", func(ctx context.Context) error { return a.server.run(ctx, a.draining) }},
	)
	if a.secure != nil {
		list = append(list,
			part{"files of TLS", a.secure.followFiles},
			part{"HTTPS", func(ctx context.Context) error { return a.secure.run(ctx, a.draining) }})
	}
	return list
}

// followCluster watches pods and nodes, as soon as the devices are in the ledger and
// the reservations are listed: pods then find what they use, and what a reservation
// names and is not listed is gone.
func (a *App) followCluster(ctx context.Context) error {
	if errors.Join(a.devices.WaitAdopted(ctx), a.reservations.WaitListed(ctx)) == nil {
		return a.cache.Run(ctx)
	}
	return nil // stopping
}

// arbitrate settles what the webhook has allowed, and what a server before this one
// left, and ends the binds under way in the end.
func (a *App) arbitrate(ctx context.Context) error {
	a.arbiter.Start()
	if a.secure != nil {
		_ = a.arbiter.Run(ctx) // it has no errors
	}
	<-ctx.Done()
	return a.arbiter.Stop(a.draining())
}

// open opens the ports and reads the files. An error leaves nothing behind.
func (a *App) open() error {
	if err := a.server.listen(a.options.BindAddress, a.options.Port, "--port"); err != nil {
		return err
	}
	var err error
	if a.secure != nil {
		err = a.secure.open()
	}
	if err == nil && a.watcher != nil {
		if err = a.watcher.Load(); err != nil {
			err = fmt.Errorf("the policy file cannot be used: %w", err)
		}
	}
	if err != nil {
		a.server.close()
		if a.secure != nil {
			a.secure.close()
		}
	}
	return err
}

// Addr returns the address served on, with the port that was chosen.
func (a *App) Addr() string { return a.server.listener.Addr().String() }

// Ledger returns the account, for programs that run the server in their own process.
func (a *App) Ledger() *ledger.Ledger { return a.ledger }

// WaitReady returns when all nodes, pods, reservations and devices have been read, or ctx ends.
func (a *App) WaitReady(ctx context.Context) error {
	if err := a.waitForObjects(ctx); err != nil {
		return err
	}
	if err := a.health.waitOpen(ctx); err != nil {
		return err
	}
	a.log.WithFields(logrus.Fields{"revision": a.ledger.Revision(), "nodes": a.ledger.Stats().Nodes}).Info("ready: all nodes, pods, reservations and devices are in the ledger")
	return nil
}

// Wait returns nil when ctx ends, or why the server cannot go on serving, which it
// does not recover from: stop it then.
func (a *App) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.running.failed:
		return err
	}
}

// Stop ends the server: no new request is taken, binds and other requests under
// way are finished while ctx lasts, then everything else stops.
func (a *App) Stop(ctx context.Context) error {
	a.health.stopping.Store(true)
	close(a.streams)
	a.stopping.Store(&ctx)
	err := a.running.stop()
	a.server.close()
	if a.secure != nil {
		a.secure.close()
	}
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
	clients, err := clientsOf(o.Kubeconfig)
	if err != nil {
		return err
	}
	a, err := New(o, clients, out)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

func (a *App) run(ctx context.Context) error {
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
