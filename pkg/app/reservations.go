package app

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/clusterstate"
	"github.com/globalreserve/globalreserve/pkg/deviceclaims"
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
}

func (a *App) buildReservations(clients Clients) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.Core.EventsV1()})
	a.reservations = &reservationObjects{
		objects: store.New(clients.Reservations, 0), cache: a.cache, broadcaster: broadcaster, failed: make(chan error, 1),
		Controller: reservations.New(reservations.Options{
			Ledger: a.ledger, Client: clients.Reservations, Nodes: nodeLookup{a.cache}, Pods: a.cache, Matcher: a.matcher,
			Served:      served(clients.Reservations, "reservations"),
			StateSynced: a.cache.WaitForSync,
			MayDecide:   func(ctx context.Context) error { return a.health.waitOpen(ctx) },
			TTL:         a.policies.ReservationTTL,
			FinishedTTL: a.options.FinishedReservationTTL,
			Recorder:    broadcaster.NewRecorder(scheme.Scheme, "globalreserve"),
			Log:         a.log,
		}),
	}
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
// soon as the room that objects prove to be held, and the devices, are in the
// ledger: pods then find what they use.
func (r *reservationObjects) start(ctx context.Context) error {
	if err := r.broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("starting to record events: %w", err)
	}
	waiting, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	r.devices.Start()
	r.Start()
	go func() {
		if errors.Join(r.devices.WaitAdopted(waiting), r.WaitAdopted(waiting)) != nil {
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
	r.Stop()
	r.devices.Stop()
	r.broadcaster.Shutdown()
	return err
}

// nodeLookup gives the cache's nodes in the controller's own words.
type nodeLookup struct{ cache *clusterstate.Cache }

// Node implements reservations.Nodes.
func (n nodeLookup) Node(name string) (reservations.Node, bool) {
	node, ok := n.cache.Node(name)
	return reservations.Node(node), ok
}

// Nodes implements reservations.Nodes.
func (n nodeLookup) Nodes() []reservations.Node {
	all := n.cache.Nodes()
	nodes := make([]reservations.Node, len(all))
	for i := range all {
		nodes[i] = reservations.Node(all[i])
	}
	return nodes
}
