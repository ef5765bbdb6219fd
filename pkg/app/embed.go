package app

import (
	"context"
	"errors"
	"net/http"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/requeue"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// What follows is for a program that has the server in its own process.

// Handler returns what is served over TLS, for callers in this process: auth.As says who is calling.
func (a *App) Handler() http.Handler { return a.known }

// Waiting are the pods that wait. A scheduler in this process takes its own pods out of them by Host; see
// pkg/schedulerplugin.
func (a *App) Waiting() *requeue.Pods { return a.waiting }

// Deciding reports whether the account can be decided on: it is complete, and the server is not stopping.
func (a *App) Deciding() bool { return !a.health.stopping.Load() && a.health.undecided() == "" }

// Ledger returns the account.
func (a *App) Ledger() ledger.Reader { return a.ledger.Reader }

// Gates are asked before the ledger.
func (a *App) Gates() *gates.Gates { return a.ledger.Gates }

// Arbiter is what decides on pods for all integration paths.
func (a *App) Arbiter() *decide.Arbiter { return a.arbiter }

// Question is how pods ask the ledger for capacity.
func (a *App) Question() *placement.Builder { return a.question }

// Reserver returns the server as a scheduler in the same process uses it, without
// HTTP. Before the server is ready, and after Stop, its calls fail with a
// *reserver.UnavailableError; Stop waits for those under way.
func (a *App) Reserver() reserver.Reserver { return a.api }

// BindNamed makes sure of capacity for a pod on a node and binds it, as the extender's verb
// does. Its errors are those of client.Client.Bind.
func (a *App) BindNamed(ctx context.Context, args *extenderv1.ExtenderBindingArgs) error {
	_, err := a.arbiter.Bind(auth.Inside(ctx), ledger.PodRef{
		Namespace: args.PodNamespace, Name: args.PodName, UID: args.PodUID,
	}, args.Node)
	var failed *gates.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed) && failed.Outcome == gates.NotReady:
		return &reserver.UnavailableError{Err: err}
	case errors.As(err, &failed):
		return reserver.NewBindError(&reserver.BindAnswer{Error: err.Error(), Outcome: string(failed.Outcome)})
	default:
		return &reserver.BindError{Outcome: string(gates.Failed), Message: err.Error()}
	}
}
