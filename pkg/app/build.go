package app

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/arbiter/matcher"
	"github.com/globalreserve/globalreserve/pkg/arbiter/notices"
	"github.com/globalreserve/globalreserve/pkg/arbiter/question"
	"github.com/globalreserve/globalreserve/pkg/arbiter/steering"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/controller"
	"github.com/globalreserve/globalreserve/pkg/debugger"
	"github.com/globalreserve/globalreserve/pkg/deviceclaims"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/limits"
	"github.com/globalreserve/globalreserve/pkg/metrics"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reservations/deletedpods"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
	"github.com/globalreserve/globalreserve/pkg/server/extender"
	"github.com/globalreserve/globalreserve/pkg/server/rest"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// New builds a server and starts nothing. Its log goes to out.
func New(o Options, clients Clients, out io.Writer) (*App, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	log, err := newLogger(o.LogLevel, o.LogFormat, out)
	if err != nil {
		return nil, err
	}
	a := &App{
		options: o, host: alone, log: log, metrics: metrics.New(), streams: make(chan struct{}),
		base: newParts(), electing: newParts(), account: newParts(), serving: newParts(),
		follow: follow.NewGate(), current: follow.NewGate(),
		policies:    policy.NewStore(policy.Default(), o.ReservationTTL),
		events:      events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.Core.EventsV1()}),
		definitions: follow.NewDefinitions(clients.Reservations.Discovery(), v1alpha1.SchemeGroupVersion, log),
	}
	a.recorder = a.events.NewRecorder(scheme.Scheme, "globalreserve")
	a.checks = identity.NewChecks(clients.Core, log)
	if a.elector, err = a.newElector(clients); err != nil {
		return nil, err
	}
	a.objects = store.New(clients.Reservations, a.elector.Term, a.elector.Writes())
	a.health = &health{
		synced: a.synced, troubles: a.troubles, leads: a.elector.Leads, fence: a.elector.Fence,
		unreachable: a.unreachable, observe: a.metrics.ObserveRequest,
	}
	a.intake = httpjson.NewIntake(requestMemory, identity.Share)
	a.metrics.RegisterIntake(a.intake.Used)
	a.metrics.RegisterRefused(map[string]func() int64{
		"Rate": a.intake.TooFast, "InFlight": a.intake.TooMany, "Reviews": a.checks.Refused,
	})
	a.ledger = arbiter.NewGatedLedger(ledger.New(ledger.Options{
		FirstRevision: firstRevision(), IgnoredResources: o.ignoredResources(),
	}), steady.Process, a.health.undecided)
	a.metrics.RegisterLedger(a.ledger.Stats)
	a.metrics.RegisterElection(
		func() bool { return a.elector.Leads() == "" },
		func() bool { fence, known := a.elector.Fence(); return known && fence.Up },
		func() float64 { return float64(a.elector.Term()) })
	a.metrics.RegisterWatches(a.ages)
	a.question = &question.Maker{Table: a.ledger.Table(), Matcher: &matcher.Matcher{}, Devices: a.devicesOf}
	a.buildCluster(clients.Core)
	a.limits = limits.New(limits.Options{
		Ledger: a.ledger.Observer, Client: clients.Core, Policy: a.policies, OnChanged: a.limitsChanged, Recorder: a.recorder, Log: a.log,
	})
	a.buildObjects(clients)
	a.buildWaiting(clients)
	if o.PolicyFile != "" {
		a.watcher = policy.NewWatcher(a.policies, o.PolicyFile, a.policyLoaded, a.policyFailed)
	}
	if err := a.buildPeers(clients); err != nil {
		return nil, err
	}
	a.serve(a.buildRoutes(clients.Core))
	a.debugger = &debugger.Server{
		API: debugger.API{Core: clients.Core, Objects: clients.Reservations}, Ledger: a.ledger.Reader,
		About: a.about, Dump: a.api.Dump, Log: a.log,
	}
	return a, nil
}

// buildCluster sets up what keeps pods and nodes in step with the ledger. It is told of what the
// parts built later need to know by methods of the App.
func (a *App) buildCluster(client kubernetes.Interface) {
	a.cache = cluster.New(client, a.ledger.Observer, cluster.Options{
		Logger: a.log, Keep: a.keep, OnCatchUp: a.caughtUp, OnNodesChanged: a.nodesChanged,
		Devices: a.devicesOf, OnDeviceAnnotations: a.annotationsChanged,
		OnPodBound:    func(pod *cluster.Pod) { a.settled(pod.Ref.UID) },
		OnPodGone:     func(pod ledger.PodRef) { a.settled(pod.UID) },
		OnPodBypassed: a.bypassed,
	})
	a.comparer = cluster.NewComparer(a.cache, client, cluster.ComparerOptions{
		Interval: a.options.CompareInterval, LiveInterval: a.options.FullCompareInterval, Logger: a.log,
		OnDrift: func(kind cluster.Kind, differences int) { a.metrics.SetDrift(string(kind), differences) },
	})
}

// buildObjects sets up what keeps our own kinds of objects in step with the ledger.
func (a *App) buildObjects(clients Clients) {
	a.reservations = reservations.New(reservations.Options{
		Ledger: a.ledger, Client: clients.Reservations, Node: a.cache.Node, Pod: a.cache.Pod, Matcher: a.question.Matcher,
		Kind:        a.definitions.Kind("reservations"),
		StateSynced: a.current.Wait,
		MayDecide:   a.elector.Wait,
		Term:        a.elector.Term,
		TTL:         a.policies.ReservationTTL,
		FinishedTTL: a.options.FinishedReservationTTL,
		Recorder:    a.recorder, Log: a.log,
	})
	a.devices = deviceclaims.New(deviceclaims.Options{
		Ledger: a.ledger.Observer, Client: clients.Reservations,
		NodeExists: func(name string) bool {
			_, ok := a.cache.Node(name)
			return ok
		},
		Kind:           a.definitions.Kind("extendedresources", "extendedresourceclaims"),
		StateSynced:    a.current.Wait,
		OnClaimChanged: a.deviceClaimChanged,
		Term:           a.elector.Term,
		Annotate:       controller.APIPatcher{Pods: clients.Core.CoreV1(), Term: a.elector.Term}.AnnotateAll,
		Recorder:       a.recorder, Log: a.log,
	})
}

// buildWaiting sets up how pods that wait come to capacity: woken, steered to what is reserved
// for them, or given that of deleted pods.
func (a *App) buildWaiting(clients Clients) {
	patcher := controller.APIPatcher{Pods: clients.Core.CoreV1(), Term: a.elector.Term}
	a.wakeups = controller.NewWakeups(controller.WakeupOptions{
		Ledger: a.ledger.Reader, Patcher: patcher, Pods: a.cache.Pods, Log: a.log,
		OnWakeup: a.metrics.ObserveWakeup, Question: a.question, Ready: a.waitComplete,
		Steer:          func(pod *cluster.Pod) bool { return a.steering.Wake(pod) },
		Send:           func(pod *cluster.Pod, offered int) bool { return a.steering.Send(pod, offered) },
		WokenElsewhere: func(scheduler string) bool { return a.host.Wakes(scheduler) },
	})
	a.steering = steering.New(steering.Options{
		Ledger: a.ledger.Reader, Question: a.question, Log: a.log, Nominator: patcher, Node: a.cache.Node,
		OnGivenUp: a.wakeups.Wake,
	})
	a.keeper = deletedpods.New(deletedpods.Options{
		Ledger: a.ledger, Store: a.objects, Matcher: a.question.Matcher, Matched: a.matched,
		Deployments: deletedpods.NewDeployments(clients.Metadata, a.log),
		Enabled:     func() bool { return a.reservations.Serving() && a.policies.KeepsDeletedPods() },
		Taken:       a.reservations.Known, TTL: a.policies.DeletedPodTTL,
		Recorder: a.recorder, Log: a.log,
	})
}

func (a *App) buildRoutes(client kubernetes.Interface) http.Handler {
	a.arbiter = arbiter.New(arbiter.Options{
		Ledger: a.ledger, Pods: a.cache.Pods, Question: a.question, API: arbiter.NewAPI(client, a.elector.Writes()), Steering: a.steering,
		Policy: a.policies, Metrics: a.metrics, Log: a.log,
		BindTimeout: a.options.BindTimeout, MayUse: a.checks.MayUse, AskedBy: a.wakeups.AskedBy, Term: a.elector.Term,
		Store: a.objects, Serving: a.reservations.Serving, ReleaseSlots: a.reservations.ReleaseSlots,
	})
	router := httpjson.NewRouter()
	notices := notices.New(a.ledger.Reader, a.question, a.recorder)
	extender.New(extender.Options{
		Arbiter: a.arbiter, Ledger: a.ledger.Reader, Wakeups: a.wakeups, Metrics: a.metrics, Log: a.log, Intake: a.intake,
		OnRefused: func(pod *cluster.Pod, offered []string) {
			notices.Refused(pod, offered)
			a.devices.Refused(pod)
		},
	}).Register(router)
	a.api = rest.New(rest.Options{Arbiter: a.arbiter, Ledger: a.ledger.Reader, Clock: a.ledger.Clock, Metrics: a.metrics, Done: a.streams, Intake: a.intake, About: a.about, MayRead: a.checks.MayRead})
	a.api.Register(router)
	a.health.register(router, a.metrics)
	return router
}

// What follows tells one part of another.

// watchAges looks once a second whether anything was heard too long ago, so that no decision has to.
func (a *App) watchAges(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			what := follow.Stale(a.ages())
			a.health.stale.Store(&what)
		}
	}
}

// firstRevision is where the revisions of a server that decides begin. They grow from the clock, so that one from
// before a restart, or of the server before, is never taken for one the ledger has reached since.
func firstRevision() uint64 { return uint64(time.Now().UnixMicro()) }

// ages returns how long ago anything was heard of each kind that decisions rest on.
func (a *App) ages() map[string]time.Duration {
	ages := a.cache.Ages()
	maps.Copy(ages, a.limits.Ages())
	maps.Copy(ages, a.reservations.Ages())
	maps.Copy(ages, a.devices.Ages())
	return ages
}

func (a *App) synced() bool {
	return a.current.IsOpen() && a.limits.Synced() && a.reservations.Synced() && a.devices.Synced()
}

// staleKinds says what was heard of too long ago to decide on, or "".
func (a *App) staleKinds() string { return a.health.staleKinds() }

// troubles says why kinds that decisions rest on cannot be read, and what to do about it, or "".
func (a *App) troubles() string {
	all := a.cache.Troubles()
	maps.Copy(all, a.limits.Troubles())
	maps.Copy(all, a.reservations.Troubles())
	maps.Copy(all, a.devices.Troubles())
	return follow.Troubles(all)
}

// standBy reports whether another server may take over.
func (a *App) standBy() bool { return a.forwarder.StandBy() }

// unreachable says why another server cannot be asked instead of this one.
func (a *App) unreachable() string { return a.forwarder.Why() }

func (a *App) caughtUp(since uint64) { a.wakeups.CatchUp(since) }

func (a *App) nodesChanged() { a.reservations.NodesChanged() }

func (a *App) devicesOf(pod *cluster.Pod) *ledger.DeviceRequest { return a.devices.Devices(pod) }

func (a *App) annotationsChanged(pod *cluster.Pod) {
	if a.synced() {
		a.devices.AnnotationsChanged(pod)
	}
}

func (a *App) keep(last *cluster.Pod) (slot ledger.Slot, told func(*ledger.Rejection), keep bool) {
	return a.keeper.Keep(last)
}

// settled tells those who remember pending pods that one is bound, or gone.
func (a *App) settled(pod types.UID) {
	a.wakeups.Settled(pod)
	a.arbiter.Settled(pod)
}

func (a *App) bypassed(pod *cluster.Pod) {
	if a.health.undecided() != "" {
		return // another server was asked
	}
	a.metrics.ObserveBypassedBind(pod.Scheduler)
	a.log.WithFields(logrus.Fields{
		"pod": pod.Ref.String(), "uid": pod.Ref.UID, "node": pod.Node, "scheduler": pod.Scheduler,
	}).Warn("a pod was bound without asking: put its scheduler behind this server")
}

// deviceClaimChanged tells those who know pods that a claim they name came, went or was made anew.
func (a *App) deviceClaimChanged(namespace, name string) {
	a.cache.ObserveClaimants(namespace, name)
	a.wakeups.DeviceClaimChanged(namespace, name)
	a.host.ClaimChanged(namespace, name)
}

// matched tells those who wake pods that the capacity of a deleted pod is for pods of a namespace.
// It is in the ledger before that is known.
func (a *App) matched(namespace string) {
	a.wakeups.Matched(namespace)
	a.host.Matched(namespace)
}

// waitComplete returns when the account is complete, or ctx ends.
func (a *App) waitComplete(ctx context.Context) error {
	for _, wait := range []func(context.Context) error{a.limits.WaitForSync, a.devices.WaitForSync, a.reservations.WaitForSync} {
		if err := wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) policyLoaded(p *policy.Policy) {
	names := make([]string, 0, len(p.Schedulers))
	for i := range p.Schedulers {
		names = append(names, p.Schedulers[i].Name)
	}
	a.metrics.KeepSchedulers(names...)
	a.metrics.PolicyLoaded(time.Now())
	a.limits.Update()
	a.log.WithField("file", a.options.PolicyFile).Info("policy in force")
}

// limitsChanged tells those who wait for a namespace to have less than it may.
func (a *App) limitsChanged() {
	a.wakeups.LimitsChanged()
	a.reservations.NodesChanged()
}

// policyFailed tells operators what they would otherwise find in the log only.
func (a *App) policyFailed(err error) {
	a.metrics.PolicyReloadFailed()
	a.log.WithError(err).Error("the policy file could not be put in force")
	if self := ownPod(); self != nil {
		a.recorder.Eventf(self, nil, v1.EventTypeWarning, "PolicyReloadFailed", "Reload", "%s", err)
	}
}

// ownPod is the pod of this server, by the environment variables of the manifests; nil outside of one.
func ownPod() *v1.ObjectReference {
	name, namespace := os.Getenv("POD_NAME"), os.Getenv("POD_NAMESPACE")
	if name == "" || namespace == "" {
		return nil
	}
	return &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name}
}

// recordEvents writes Events to the API server until ctx ends.
func (a *App) recordEvents(ctx context.Context) error {
	defer a.events.Shutdown()
	if err := a.events.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("starting to record events: %w", err)
	}
	<-ctx.Done()
	return nil
}
