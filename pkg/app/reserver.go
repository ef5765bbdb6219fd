package app

import (
	"context"
	"errors"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/pkg/arbiter"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// Reserver returns the server as a scheduler in the same process uses it, without
// HTTP. Before the server is ready, and after Stop, its calls fail with a
// *reserver.UnavailableError; Stop ends its watchers and waits for its other calls.
func (a *App) Reserver() reserver.Reserver { return a.api }

// BindNamed makes sure of room for a pod on a node and binds it, as the extender's verb
// does. Its errors are those of client.Client.Bind.
func (a *App) BindNamed(ctx context.Context, args *extenderv1.ExtenderBindingArgs) error {
	_, err := a.arbiter.Bind(ctx, ledger.PodRef{Namespace: args.PodNamespace, Name: args.PodName, UID: args.PodUID}, args.Node)
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
