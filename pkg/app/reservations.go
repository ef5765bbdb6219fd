package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/clusterstate"
	"github.com/globalreserve/globalreserve/pkg/deviceclaims"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
	"github.com/globalreserve/globalreserve/pkg/restapi"
)

// reservationObjects is the part of the server that deals with Reservation
// objects.
type reservationObjects struct {
	*reservations.Controller
	objects     *store.Store
	cache       *clusterstate.Cache
	broadcaster events.EventBroadcaster
	devices     *deviceclaims.Controller

	cancel context.CancelFunc
	failed chan error // what came of starting the cache
	parts  []part
	stops  []func() // of the parts that run
}

// part runs until ctx ends.
type part interface {
	Run(ctx context.Context) error
}

// start has a part run in the background; stop ends it and returns when it has ended.
func start(ctx context.Context, p part) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Run(ctx) // these parts have no errors but the end of ctx
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (a *App) buildReservations(clients Clients) {
	a.definitions = follow.NewDefinitions(clients.Reservations.Discovery(), v1alpha1.SchemeGroupVersion, a.log)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.Core.EventsV1()})
	a.reservations = &reservationObjects{
		objects: store.New(clients.Reservations, 0), cache: a.cache, broadcaster: broadcaster, failed: make(chan error, 1),
		Controller: reservations.New(reservations.Options{
			Ledger: a.ledger, Client: clients.Reservations, Nodes: a.cache, Pods: a.cache, Matcher: a.matcher,
			Kind:        a.definitions.Kind("reservations"),
			StateSynced: a.cache.WaitForSync,
			MayDecide:   func(ctx context.Context) error { return a.health.waitOpen(ctx) },
			TTL:         a.policies.ReservationTTL,
			FinishedTTL: a.options.FinishedReservationTTL,
			Recorder:    broadcaster.NewRecorder(scheme.Scheme, "globalreserve"),
			Log:         a.log,
		}),
	}
	a.reservations.parts = []part{a.definitions, a.reservations}
	a.cache.NotifyNodes(a.reservations.NodesChanged)
}

// store is what the REST API keeps durable reservations in.
func (r *reservationObjects) store() restapi.Store {
	return struct {
		*store.Store
		*reservations.Controller
	}{r.objects, r.Controller}
}

// start begins to watch reservations, devices and claims, and pods and nodes as
// soon as the devices are in the ledger and the reservations are listed: pods then
// find what they use, and what a reservation names and is not listed is gone.
func (r *reservationObjects) start(ctx context.Context) error {
	if err := r.broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("starting to record events: %w", err)
	}
	waiting, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	for _, p := range r.parts {
		r.stops = append(r.stops, start(ctx, p))
	}
	go func() {
		if errors.Join(r.devices.WaitAdopted(waiting), r.WaitListed(waiting)) != nil {
			r.failed <- nil // stopping
			return
		}
		r.failed <- r.cache.Start(ctx)
	}()
	return nil
}

// stop ends the watches of reservations, devices, pods and nodes.
func (r *reservationObjects) stop() error {
	var err error
	if r.cancel != nil {
		r.cancel()
		err = <-r.failed
	}
	r.cache.Stop()
	for _, stop := range slices.Backward(r.stops) {
		stop()
	}
	r.broadcaster.Shutdown()
	return err
}
