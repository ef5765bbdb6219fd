package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/autoscaling"
	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/drain"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/dra"
	"github.com/globalreserve/globalreserve/pkg/extendeddevices"
	"github.com/globalreserve/globalreserve/pkg/gangs"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/debugger"
	"github.com/globalreserve/globalreserve/pkg/http/extender"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/http/observe"
	"github.com/globalreserve/globalreserve/pkg/http/rest"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/limits"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reservations/deletedpods"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
	"github.com/globalreserve/globalreserve/pkg/version"
)

// The rate of Events about gangs that have started and are not whole, and of those about Bindings that are redirected.
const (
	gangEventsPerSecond = 5
	gangEventBurst      = 50
)

// New builds a server that does nothing before Start. Its log goes to out.
func New(o Options, clients Clients, out io.Writer) (*App, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	log, err := newLogger(o.LogLevel, o.LogFormat, out)
	if err != nil {
		return nil, err
	}
	o = o.observing()
	streaming, endStream := context.WithCancel(context.Background())
	a := &App{
		streaming: streaming, endStream: endStream,
		options: o, log: log, metrics: metrics.New(),
		base: newParts(), electing: newParts(), account: newParts(), serving: newParts(),
		mayFollow: informer.NewLatch(), caughtUp: informer.NewLatch(),
		policies:    policy.NewStore(policy.Default(), o.ReservationTTL),
		events:      events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.Core.EventsV1()}),
		definitions: informer.NewDefinitions(clients.Reservations.Discovery(), v1alpha1.SchemeGroupVersion, log),
	}
	if err := a.build(clients); err != nil {
		a.events.Shutdown() // it has run since it was made
		return nil, err
	}
	return a, nil
}

func (a *App) build(clients Clients) (err error) {
	o, log := &a.options, a.log
	a.recorder = a.events.NewRecorder(scheme.Scheme, "globalreserve")
	a.checks = auth.NewChecks(clients.Core, log)
	if a.elector, err = a.newElector(clients); err != nil {
		return err
	}
	a.objects = store.New(clients.Reservations, a.elector.Term(), a.elector.Writes())
	a.health = &health{
		synced: a.synced, troubles: a.troubles, notLeading: a.notLeading, observes: o.Observe, fence: a.elector.Fence,
		unreachable: a.unreachable, metrics: a.metrics, notes: a.notes,
	}
	a.intake = httpjson.NewIntake(requestMemory, auth.Share)
	a.registerIntake()
	a.ledger = gates.NewGatedLedger(ledger.New(ledger.Options{
		FirstRevision: firstRevision(), IgnoredResources: o.ignoredResources(),
	}), o.Clock, gates.New(a.policies), a.health.undecided)
	a.metrics.RegisterLedger(a.ledger.Stats)
	a.metrics.RegisterElection(o.Observe,
		func() bool { return !o.Observe && a.elector.Leads() == "" },
		func() bool { fence, known := a.elector.Fence(); return known && fence.Up },
		func() float64 { return float64(a.elector.Term().Get()) })
	a.metrics.RegisterWatches(a.allAges)
	if err := a.buildCluster(clients.Core); err != nil {
		return err
	}
	a.question = &placement.Builder{Reader: a.cache.Reader(), Matcher: &placement.Matcher{}, Devices: a.devicesOf}
	a.limits = limits.New(limits.Options{
		Ledger: a.ledger.Observer(), Client: clients.Core, Policy: a.policies, OnChanged: a.limitsChanged,
		Recorder: a.recorder,
		Log:      a.log,
	})
	a.buildObjects(clients)
	a.buildWaiting(clients)
	a.buildAutoscaling(clients)
	if o.PolicyFile != "" {
		a.watcher = policy.NewWatcher(a.policies, o.PolicyFile, a.policyLoaded, a.policyFailed)
	}
	if err := a.buildPeers(clients); err != nil {
		return err
	}
	a.serve(a.buildRoutes(clients))
	return nil
}

// registerIntake registers the metrics of this build and of what it takes in.
func (a *App) registerIntake() {
	build := version.Get()
	a.metrics.RegisterBuild(build.GitVersion, build.GitCommit, build.GoVersion)
	a.metrics.RegisterIntake(a.intake.Used)
	a.metrics.RegisterRefused(map[string]func() int64{
		"Rate": a.intake.TooFast.Load, "InFlight": a.intake.TooMany.Load, "Reviews": a.checks.Refused,
	})
}

// buildCluster sets up what keeps pods and nodes in step with the ledger. It reaches the parts that are built later by
// methods of the App.
func (a *App) buildCluster(client kubernetes.Interface) (err error) {
	if a.kinds, err = kindsOfGangs(a.options.PolicyFile); err != nil {
		return err
	}
	a.cache = cluster.New(client, a.ledger.Observer(), cluster.Options{
		Gangs: a.kinds, Logger: a.log, Keep: a.keep, OnCatchUp: a.onCatchUp, OnNodesChanged: a.lookAgain,
		Devices: a.devicesOf, OnDeviceAnnotations: a.annotationsChanged, OnNominated: a.nominated,
		OnPodBound: a.bound,
		OnPodGone:  func(pod ledger.PodRef) { a.waiting.Settled(pod.UID) },
	})
	a.comparer = cluster.NewComparer(a.cache, client, cluster.ComparerOptions{
		Interval: a.options.CompareInterval, LiveInterval: a.options.FullCompareInterval, Logger: a.log,
		OnDrift: func(kind cluster.Kind, differences int) { a.metrics.SetDrift(string(kind), differences) },
	})
	return nil
}

// buildObjects sets up what keeps our own kinds of objects in step with the ledger, and what follows those of others.
func (a *App) buildObjects(clients Clients) {
	a.reservations = reservations.New(reservations.Options{
		Ledger: a.ledger, Client: clients.Reservations, Nodes: a.cache.Nodes, Pods: a.cache.Pods, Matcher: a.question.Matcher,
		Kind:        a.definitions.Kind("reservations"),
		StateSynced: a.caughtUp,
		MayDecide:   a.elector.Wait,
		Term:        a.elector.Term(),
		Policy:      a.policies,
		OnRefused: func(asked *ledger.Slot, said *ledger.Rejection, why string) {
			a.arbiter.ObjectRefused(asked, said, why)
		},
		FinishedTTL: a.options.FinishedReservationTTL,
		Recorder:    a.recorder, Log: a.log,
	})
	a.devices = extendeddevices.New(extendeddevices.Options{
		Ledger: a.ledger.Observer(), Client: clients.Reservations,
		Nodes: a.cache.Nodes, Pods: a.cache.Pods,
		Kind:           a.definitions.Kind("extendedresources", "extendedresourceclaims"),
		TemplateKind:   a.definitions.Kind("extendedresourceclaimtemplates"),
		StateSynced:    a.caughtUp,
		OnAdopted:      a.cache.ObserveDevices,
		OnClaimChanged: a.deviceClaimChanged,
		Term:           a.elector.Term(),
		Annotate:       requeue.APIPatcher{Pods: clients.Core.CoreV1(), Term: a.elector.Term()}.Annotate,
		Recorder:       a.recorder, Log: a.log,
	})
	a.gangs = gangs.New(gangs.Options{
		Pods: a.cache.Pods, Kinds: a.kinds, Client: clients.Objects, Discovery: clients.Reservations.Discovery(),
		OnChanged: a.gangChanged, Log: a.log,
	})
	a.claims = dra.New(dra.Options{
		Client: clients.Core, Discovery: clients.Reservations.Discovery(), Recorder: a.recorder, Log: a.log,
		OnOffered: a.cache.ObserveDRA,
	})
	a.metrics.RegisterResourceClaims(
		func() int { return len(a.claims.Doubles()) }, func() int { return a.claims.Unbound(a.waits) })
}

// kindsOfGangs returns the kinds of gangs that a policy file, if there is one, has at the start.
func kindsOfGangs(file string) (*kinds.Table, error) {
	p := policy.Default()
	if file != "" {
		var err error
		if p, err = policy.Load(file); err != nil {
			return nil, fmt.Errorf("the policy file cannot be used: %w", err)
		}
	}
	return kinds.New(p.Gangs.Kinds)
}

// buildWaiting sets up how pods that wait come to capacity: woken, steered to what is reserved
// for them, or given that of deleted pods.
func (a *App) buildWaiting(clients Clients) {
	patcher := requeue.APIPatcher{Pods: clients.Core.CoreV1(), Term: a.elector.Term()}
	a.waiting = requeue.New(requeue.Options{
		Ledger: a.ledger.Reader, Gates: a.ledger.Gates, Question: a.question, Pods: a.cache.Pods, Nodes: a.cache.Nodes,
		Patcher: patcher, Nominator: patcher,
		Recorder: a.recorder, Metrics: a.metrics, ClaimTrouble: a.devices.Trouble, Ready: a.waitComplete, Log: a.log,
	})
	a.keeper = deletedpods.New(deletedpods.Options{
		Ledger: a.ledger, Store: a.objects, Matcher: a.question.Matcher, Matched: a.waiting.Matched,
		Deployments: deletedpods.NewDeployments(clients.Metadata, a.log),
		Policy:      a.policies, Serving: a.reservations.Serving, Taken: a.reservations.Known,
		Recorder: a.recorder, Log: a.log,
	})
}

// buildAutoscaling sets up what informs cluster autoscalers.
func (a *App) buildAutoscaling(clients Clients) {
	o := autoscaling.Options{
		Ledger: a.ledger, Policy: a.policies, Metrics: a.metrics, Log: a.log, Client: clients.Core,
		Nodes:        a.cache.Nodes,
		Reservations: a.reservations, Objects: clients.Objects, Discovery: clients.Reservations.Discovery(),
		Pods: a.cache.Pods, Question: a.question, Waiting: a.waiting,
		Patcher: requeue.APIPatcher{Pods: clients.Core.CoreV1(), Term: a.elector.Term()},
	}
	a.protector = autoscaling.NewProtector(o)
	a.provisioner = autoscaling.NewProvisioner(o)
	a.holder = autoscaling.NewHolder(o)
	a.metrics.RegisterAutoscaling(func() int { return len(a.cache.KeepingNodes()) })
}

func (a *App) buildRoutes(clients Clients) http.Handler {
	client := clients.Core
	a.arbiter = decide.New(decide.Options{
		Ledger: a.ledger, Pods: a.cache.Pods, Question: a.question, API: decide.NewAPI(client, a.elector.Writes()),
		Waiting: a.waiting,
		Policy:  a.policies, Metrics: a.metrics, Log: a.log,
		BindTimeout: a.options.BindTimeout, Rights: a.checks,
		Term:  a.elector.Term(),
		Gangs: a.gangs, ResourceClaims: a.claims, Nodes: a.cache.Nodes,
		GangEvents:     informer.NewEvents(a.recorder, gangEventsPerSecond, gangEventBurst),
		RedirectEvents: informer.NewEvents(a.recorder, gangEventsPerSecond, gangEventBurst),
		AdmissionWarns: a.options.Secure.AdmissionWarn,
	})
	a.reserve = reserve.New(reserve.Options{
		Arbiter: a.arbiter, Ledger: a.ledger, Question: a.question, Waiting: a.waiting, Policy: a.policies,
		Metrics: a.metrics, Log: a.log,
		Store: a.objects, Serving: a.reservations.Serving, ReleaseSlots: a.reservations.ReleaseSlots,
		ToGiveBack: a.reservations.ToGiveBack,
		Rights:     a.checks, ReadTimeout: a.options.BindTimeout,
	})
	a.metrics.RegisterGangs(a.arbiter.CountGangs, a.arbiter.HalfGangTime)
	a.metrics.RegisterTotals(metrics.Totals{
		Capacity: a.ledger.Totals, Pending: a.arbiter.CountWaiters, Reservations: a.reservations.Phases,
	})
	if a.options.Observe {
		a.observer = observe.New(observe.Options{
			Client: client, Arbiter: a.arbiter, BindTimeout: a.options.BindTimeout, Log: a.log,
		})
	}
	router := httpjson.NewRouter()
	extender.New(extender.Options{
		Arbiter: a.arbiter, Ledger: a.ledger.Reader, Metrics: a.metrics, Log: a.log, Intake: a.intake,
		Observer: a.observer,
	}).Register(router)
	comparer := &debugger.Comparer{
		Core: clients.Whole, Objects: clients.Reservations, Ledger: a.ledger.Reader, About: a.about,
	}
	rest.New(rest.Options{
		Arbiter: a.arbiter, Reserve: a.reserve, Waiting: a.waiting, Ledger: a.ledger.Reader, Clock: a.ledger.Clock,
		Metrics: a.metrics, Serving: a.streaming, Intake: a.intake,
		About: a.about, Diff: comparer.Diff, Rights: a.checks,
		Drains: drain.New(drain.Options{
			Ledger: a.ledger, Question: a.question, Nodes: a.cache.Nodes, Pods: a.cache.Pods, Client: clients.Whole,
		}),
		PendingReservations: a.reservations.Pending, DrainReservations: a.reservations.Drained,
		ResourceClaims: a.claims, ReserveRefusal: a.reserveRefusal(),
	}).Register(router)
	a.health.register(router)
	return router
}

// firstRevision is where the revisions of a server that decides begin. They grow from the clock, so that one from
// before a restart, or of the server before, is never taken for one the ledger has reached since.
func firstRevision() uint64 { return uint64(time.Now().UnixMicro()) }
