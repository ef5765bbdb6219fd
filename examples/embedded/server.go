package main

import (
	"context"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// inProcess is the server of this process as the gang scheduler uses it. A gang's capacity is written
// down as a Reservation, as by default: if the process dies between two binds of a gang, nobody takes
// the capacity of the rest. A scheduler of single pods may set Durable to false, and so save the write to
// etcd: a pod that is not bound has lost nothing.
type inProcess struct {
	reserver.Reserver
	app *app.App
}

var _ gangsched.GlobalReserve = inProcess{}

// Bind implements gangsched.GlobalReserve.
func (s inProcess) Bind(ctx context.Context, args *extenderv1.ExtenderBindingArgs) error {
	return s.app.BindNamed(ctx, args)
}
