package app

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/clusterstate"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
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

	cancel context.CancelFunc
	failed chan error // what came of starting the cache
}

func (a *App) buildReservations(clients Clients) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.Core.EventsV1()})
	a.reservations = &reservationObjects{
		objects: store.New(clients.Reservations, 0), cache: a.cache, broadcaster: broadcaster, failed: make(chan error, 1),
		Controller: reservations.New(reservations.Options{
			Ledger: a.ledger, Client: clients.Reservations, Nodes: nodeLookup{a.cache}, Pods: a.cache, Matcher: a.matcher,
			Served:      served(clients.Reservations),
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

// start begins to watch reservations, and pods and nodes as soon as the room
// that objects prove to be held is in the ledger: pods then find what they use.
func (r *reservationObjects) start(ctx context.Context) error {
	if err := r.broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("starting to record events: %w", err)
	}
	waiting, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	r.Start()
	go func() {
		if err := r.WaitAdopted(waiting); err != nil {
			r.failed <- nil // stopping
			return
		}
		r.failed <- r.cache.Start(ctx)
	}()
	return nil
}

// stop ends the watches of reservations, pods and nodes.
func (r *reservationObjects) stop() error {
	var err error
	if r.cancel != nil {
		r.cancel()
		err = <-r.failed
	}
	r.cache.Stop()
	r.Stop()
	r.broadcaster.Shutdown()
	return err
}

// served returns how to ask whether the API server knows Reservations.
func served(client versioned.Interface) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		list, err := client.Discovery().ServerResourcesForGroupVersionWithContext(ctx, v1alpha1.SchemeGroupVersion.String())
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for i := range list.APIResources {
			if list.APIResources[i].Name == "reservations" {
				return true, nil
			}
		}
		return false, nil
	}
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
