package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// The methods below notify one part of the server of changes in another.

// watchAges checks once a second whether the latest news of a kind is too old, so that no decision has to.
func (a *App) watchAges(ctx context.Context) error {
	for informer.Pause(ctx, time.Second) {
		what := informer.Stale(a.ages())
		a.health.stale.Store(&what)
	}
	return nil
}

// ages returns the age of the latest news of each kind that decisions rest on.
func (a *App) ages() map[string]time.Duration {
	ages := a.cache.News().Ages
	if !a.options.Observe {
		maps.Copy(ages, informer.NewsOf(a.essential()...).Ages)
	}
	return ages
}

// essential are the watches that decisions rest on, beside those of the cache. An observer decides nothing.
func (a *App) essential() []*informer.Watch {
	return []*informer.Watch{a.limits.Watch, a.reservations.Watch, a.devices.Watch}
}

// partial are the watches that only some of the pods depend on: those of gangs, with devices of DRA, with a template
// of claims, or whose Deployment keeps their capacity. The packages of gangs and ResourceClaims see to it that nothing
// is decided on old news of these. Of the others the latest known state goes on to count.
func (a *App) partial() []*informer.Watch {
	return slices.Concat(a.gangs.Watches(), a.claims.Watches(),
		[]*informer.Watch{a.devices.Templates, a.keeper.Deployments.Watch})
}

// allAges is ages, and the ages of all other watches.
func (a *App) allAges() map[string]time.Duration {
	ages := a.ages()
	maps.Copy(ages, informer.NewsOf(append(a.partial(), a.forwarder.Watch(), a.provisioner.Watch)...).Ages)
	return ages
}

func (a *App) synced() bool {
	if a.options.Observe {
		return a.caughtUp.IsOpen()
	}
	return a.caughtUp.IsOpen() && a.limits.Ready.IsOpen() && a.reservations.Ready.IsOpen() && a.devices.Ready.IsOpen() &&
		a.gangs.Synced()
}

// staleKinds names the kinds whose latest news is too old to decide on, or is "".
func (a *App) staleKinds() string { return a.health.staleKinds() }

// troubles says why kinds that decisions rest on cannot be read, and what to do about it, or "".
func (a *App) troubles() string {
	all := a.cache.News().Troubles
	maps.Copy(all, informer.NewsOf(a.essential()...).Troubles)
	return informer.Troubles(all)
}

// notes says why kinds cannot be read that only some pods need, and what cannot be written for autoscalers.
func (a *App) notes() (lines string) {
	if text := informer.Troubles(informer.NewsOf(a.partial()...).Troubles); text != "" {
		lines += "\nnot read: " + text
	}
	if text := informer.Troubles(map[string]error{
		"nodes": a.protector.Trouble(), "provisioningrequests": a.provisioner.Trouble(), "pods/status": a.holder.Trouble(),
	}); text != "" {
		lines += "\nautoscalers: not told: " + text
	}
	return lines
}

// standBy reports whether another server may take over.
func (a *App) standBy() bool { return a.forwarder.StandBy() }

// unreachable says why another server cannot be asked instead of this one.
func (a *App) unreachable() string { return a.forwarder.Why() }

// waits reports whether a pod has no node.
func (a *App) waits(namespace, name string, uid types.UID) bool {
	pod, ok := a.cache.Pod(namespace, name)
	return ok && pod.Ref.UID == uid && pod.Node == ""
}

func (a *App) onCatchUp(since uint64) { a.waiting.CatchUp(since) }

// lookAgain retries what waits after a change that the ledger has no event for.
func (a *App) lookAgain() {
	a.reservations.Retry()
	a.arbiter.LookAgain()
}

func (a *App) devicesOf(pod *cluster.Pod) *ledger.DeviceRequest { return a.devices.Devices(pod) }

func (a *App) annotationsChanged(pod *cluster.Pod) {
	switch {
	case pod.Node == "":
		a.devices.Waits(pod)
	case a.synced():
		a.devices.AnnotationsChanged(pod)
	}
}

// nominatedFor is how long capacity is kept for a pod that is nominated for a node where others make way for it. Nearly
// all pods end sooner.
const nominatedFor = 10 * time.Minute

func (a *App) nominated(pod *cluster.Pod) {
	placement := a.question.For(pod, pod.Nominated)
	if a.ledger.Nominate(&placement, a.ledger.Clock.Now().Add(nominatedFor)) {
		a.log.WithFields(logrus.Fields{
			"pod": pod.Ref.String(), "uid": pod.Ref.UID, "node": pod.Nominated, "priority": pod.Priority,
		}).Info("pods make way for a pod of a higher priority: what they leave is kept for it")
	}
}

func (a *App) keep(last *cluster.Pod) (slot ledger.Slot, told func(*ledger.Rejection), keep bool) {
	return a.keeper.Keep(last)
}

// bound is called for a pod that has a node now, or was found with one; bypassed: nobody asked the server first.
func (a *App) bound(pod *cluster.Pod, bypassed bool) {
	a.waiting.Settled(pod.Ref.UID)
	if a.health.undecided() == "" {
		created, now := time.Unix(pod.Created, 0), a.ledger.Clock.Wall()
		a.metrics.ObserveBound(pod.Scheduler, now.Sub(created))
		a.options.Tracer.Bound(pod.Ref, pod.Node, created, now)
	}
	if bypassed {
		a.bypassed(pod)
	}
}

func (a *App) bypassed(pod *cluster.Pod) {
	if a.observer != nil {
		a.observer.Bound(pod)
		return
	}
	if a.health.undecided() != "" {
		return // another server was asked
	}
	a.metrics.ObserveBypassedBind(pod.Scheduler)
	a.log.WithFields(logrus.Fields{
		"pod": pod.Ref.String(), "uid": pod.Ref.UID, "node": pod.Node, "scheduler": pod.Scheduler,
	}).Warn("a pod was bound without asking: put its scheduler behind this server")
}

// deviceClaimChanged notifies the parts that know pods: a claim that pods name came, went or was made anew.
func (a *App) deviceClaimChanged(namespace, name string) {
	a.cache.ObserveClaimants(namespace, name)
	a.waiting.DeviceClaimChanged(namespace, name)
}

// waitComplete returns when the account is complete, or ctx ends.
func (a *App) waitComplete(ctx context.Context) error {
	for _, wait := range []func(context.Context) error{
		a.limits.Ready.Wait, a.devices.Ready.Wait, a.gangs.WaitForSync, a.reservations.Ready.Wait,
	} {
		if err := wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// gangChanged wakes the waiting members of a gang: it may need another number of them now, or what was wrong with it
// may have been put right.
func (a *App) gangChanged(key kinds.Key) {
	if !a.synced() {
		return // nobody was refused yet
	}
	pending, _, _ := a.cache.Gang(key)
	for _, pod := range pending {
		a.waiting.Wake(pod)
	}
}

func (a *App) policyLoaded(p *policy.Policy) {
	names := make([]string, 0, len(p.Schedulers))
	for i := range p.Schedulers {
		names = append(names, p.Schedulers[i].Name)
	}
	a.metrics.KeepSchedulers(names...)
	a.metrics.PolicyLoaded(time.Now())
	a.limits.PolicyChanged()
	a.log.WithField("file", a.options.PolicyFile).Info("policy in force")
	if !reflect.DeepEqual(p.Gangs.Kinds, a.kinds.List()) {
		a.policyFailed(errors.New("gangs.kinds differ from those that the server has started with, which stay in force: " +
			"restart the server to change them; everything else in the file is in force"))
	}
}

// limitsChanged wakes what waits for a namespace, or a caller, to have less than it may, or for a gate to open.
func (a *App) limitsChanged() {
	a.waiting.LimitsChanged()
	a.lookAgain()
}

// policyFailed reports an error of the policy file by a metric and an Event, not in the log only.
func (a *App) policyFailed(err error) {
	a.metrics.PolicyReloadFailed()
	a.log.WithError(err).Error("the policy file is not in force, or not all of it")
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

// about says which server's account this is, and which parts of it are complete.
func (a *App) about() reserver.DumpAnswer {
	return reserver.DumpAnswer{
		Server: a.elector.Identity(), Undecided: a.health.undecided(), Pods: a.cache.Synced(), Objects: a.synced(),
		IgnoredResources: a.options.IgnoredResources,
	}
}
