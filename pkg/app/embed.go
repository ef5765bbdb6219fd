package app

import (
	"iter"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/arbiter/question"
	"github.com/globalreserve/globalreserve/pkg/cluster"
)

// What follows is for a scheduler that has the server in its own process and is
// asked by nobody over HTTP; see pkg/schedulerplugin/local.

// Deciding reports whether the account can be decided on: it is complete, and the
// server is not stopping.
func (a *App) Deciding() bool { return a.health.ready() == "" }

// Arbiter is what decides for all integration paths.
func (a *App) Arbiter() *arbiter.Arbiter { return a.arbiter }

// Question is how pods ask the ledger for capacity.
func (a *App) Question() *question.Maker { return a.question }

// OnClaimChanged has f called whenever a claim of devices came, went or was made anew. It
// must be called before Start, and f must not block.
func (a *App) OnClaimChanged(f func(namespace, name string)) { a.claimChanged = f }

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
	*cluster.Cache
	app *App
}

// PendingPods implements controller.Pods.
func (p pendingPods) PendingPods() iter.Seq[*cluster.Pod] {
	return func(yield func(*cluster.Pod) bool) {
		for pod := range p.Cache.PendingPods() {
			own := p.app.wakesItself != nil && p.app.wakesItself(pod.Scheduler)
			if !own && !yield(pod) {
				return
			}
		}
	}
}
