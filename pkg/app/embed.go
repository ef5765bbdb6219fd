package app

import (
	"context"
	"errors"
	"iter"

	"github.com/globalreserve/globalreserve/pkg/binder"
	"github.com/globalreserve/globalreserve/pkg/clusterstate"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// What follows is for a scheduler that has the server in its own process and is
// asked by nobody over HTTP; see pkg/schedulerplugin/local.

// Deciding reports whether the account can be decided on: it is complete, and the
// server is not stopping.
func (a *App) Deciding() bool { return a.health.ready() == "" }

// Candidates returns the holds a pod may use, the preferred ones first.
func (a *App) Candidates(pod *podinfo.Info) []ledger.HoldRef { return a.matcher.Candidates(pod) }

// Devices returns what the claims of devices that a pod names ask for, nil for a pod that
// names none.
func (a *App) Devices(pod *podinfo.Info) *ledger.DeviceRequest { return a.devices.Devices(pod) }

// OnClaimChanged has f called whenever a claim of devices came, went or was made anew. It
// must be called before Start, and f must not block.
func (a *App) OnClaimChanged(f func(namespace, name string)) { a.claimChanged = f }

// Bind binds a pod to a node as /bind does. What the caller knows of the pod counts
// where the informers have not heard of it yet. An error is a *binder.Error.
func (a *App) Bind(ctx context.Context, pod *podinfo.Info, node string) error {
	if why := a.health.undecided(); why != "" {
		return &binder.Error{Outcome: binder.Failed, Pod: pod.Ref, Node: node, Cause: errors.New(why)}
	}
	a.recent.Add(pod)
	_, err := a.binder.Bind(ctx, pod.Ref, node)
	return err
}

// LeaveAlone says which schedulers wake their pods themselves: at its start the
// server does not, as it does for pods that a server before it may have refused. It
// must be called before Start.
func (a *App) LeaveAlone(own func(scheduler string) bool) { a.wakesItself = own }

// NotifyMatched has f called when it becomes known, after the room was reserved, that pods of
// a namespace may use it. f must not block.
func (a *App) NotifyMatched(f func(namespace string)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onMatched = append(a.onMatched, f)
}

// DecideOnlyWhile has decisions made only while held reports true: that no other process
// can be deciding. It must be called before Start.
func (a *App) DecideOnlyWhile(held func() bool) { a.health.held = held }

// pendingPods is the cache to those who wake pods.
type pendingPods struct {
	*clusterstate.Cache
	app *App
}

// PendingPods implements controller.Pods.
func (p pendingPods) PendingPods() iter.Seq[*podinfo.Info] {
	return func(yield func(*podinfo.Info) bool) {
		for pod := range p.Cache.PendingPods() {
			own := p.app.wakesItself != nil && p.app.wakesItself(pod.Scheduler)
			if !own && !yield(pod) {
				return
			}
		}
	}
}
