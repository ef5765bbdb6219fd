package main

import (
	"context"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/examples/groupscheduler/groupsched"
	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// inProcess is the server of this process as the group scheduler uses it.
type inProcess struct{ app *app.App }

var _ groupsched.GlobalReserve = inProcess{}

// Reserve implements groupsched.GlobalReserve. Of two processes one may die between the other's
// reserve and bind; here they die together, and whoever starts next takes the room anew. So it is kept
// in memory only, which takes microseconds instead of a write to etcd.
func (s inProcess) Reserve(ctx context.Context, r *reserver.Request) (*reserver.Answer, error) {
	inMemory := *r
	inMemory.Durable = new(bool)
	return s.app.Reserver().Reserve(ctx, &inMemory)
}

// Unreserve implements groupsched.GlobalReserve.
func (s inProcess) Unreserve(ctx context.Context, r *reserver.Request) (*reserver.Answer, error) {
	return s.app.Reserver().Unreserve(ctx, r)
}

// Bind implements groupsched.GlobalReserve.
func (s inProcess) Bind(ctx context.Context, args *extenderv1.ExtenderBindingArgs) error {
	return s.app.BindNamed(ctx, args)
}
