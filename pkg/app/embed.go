package app

import (
	"context"
	"errors"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// What follows is for a program that has the server in its own process.

// Host is a scheduler that has the server in its process and is asked by nobody over HTTP; see
// pkg/schedulerplugin/local. All fields are needed, and none may block.
type Host struct {
	// Wakes reports whether the host wakes the pods of a scheduler itself: at its start the server
	// does not, as it does for pods that a server before it may have refused.
	Wakes func(scheduler string) bool
	// ClaimChanged is told whenever a claim of devices came, went or was made anew.
	ClaimChanged func(namespace, name string)
	// Wake is told of pods of those schedulers that are to be tried again, after AdviseGang has refused them.
	Wake func(pod *cluster.Pod)
	// Matched is told when it becomes known, after the capacity was reserved, that pods of a
	// namespace may use it.
	Matched func(namespace string)
	// Mapped is told of resources that DeviceClasses leave to DRA and did not before, after the ledger is.
	Mapped func(resources []string)
}

// alone is the host of a server that is a program of its own.
var alone = Host{
	Wakes:        func(string) bool { return false },
	ClaimChanged: func(string, string) {},
	Wake:         func(*cluster.Pod) {},
	Matched:      func(string) {},
	Mapped:       func([]string) {},
}

// wake has a pod tried again.
func (a *App) wake(pod *cluster.Pod) {
	if a.host.Wakes(pod.Scheduler) {
		a.host.Wake(pod)
	} else {
		a.wakeups.Wake(pod)
	}
}

// Embed has the server work for a scheduler in its process. It must be called before Start.
func (a *App) Embed(h Host) { a.host = h }

// Deciding reports whether the account can be decided on: it is complete, and the
// server is not stopping.
func (a *App) Deciding() bool { return !a.health.stopping.Load() && a.health.undecided() == "" }

// Ledger returns the account.
func (a *App) Ledger() ledger.Reader { return a.ledger.Reader }

// Arbiter is what decides for all integration paths.
func (a *App) Arbiter() *arbiter.Arbiter { return a.arbiter }

// Question is how pods ask the ledger for capacity.
func (a *App) Question() *placement.Builder { return a.question }

// Reserver returns the server as a scheduler in the same process uses it, without
// HTTP. Before the server is ready, and after Stop, its calls fail with a
// *reserver.UnavailableError; Stop ends its watchers and waits for its other calls.
func (a *App) Reserver() reserver.Reserver { return a.api }

// BindNamed makes sure of capacity for a pod on a node and binds it, as the extender's verb
// does. Its errors are those of client.Client.Bind.
func (a *App) BindNamed(ctx context.Context, args *extenderv1.ExtenderBindingArgs) error {
	_, err := a.arbiter.Bind(identity.Inside(ctx), ledger.PodRef{Namespace: args.PodNamespace, Name: args.PodName, UID: args.PodUID}, args.Node)
	var failed *arbiter.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed) && failed.Outcome == arbiter.NotReady:
		return &reserver.UnavailableError{Err: err}
	case errors.As(err, &failed):
		return reserver.NewBindError(&reserver.BindAnswer{Error: err.Error(), Outcome: string(failed.Outcome)})
	default:
		return &reserver.BindError{Outcome: string(arbiter.Failed), Message: err.Error()}
	}
}
