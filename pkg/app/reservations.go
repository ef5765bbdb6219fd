package app

import (
	"context"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
)

// buildReservations sets up what keeps Reservation objects in step with the ledger.
func (a *App) buildReservations(clients Clients) {
	a.definitions = follow.NewDefinitions(clients.Reservations.Discovery(), v1alpha1.SchemeGroupVersion, a.log)
	a.objects = store.New(clients.Reservations, 0)
	a.reservations = reservations.New(reservations.Options{
		Ledger: a.ledger, Client: clients.Reservations, Nodes: a.cache, Pods: a.cache, Matcher: a.matcher,
		Kind:        a.definitions.Kind("reservations"),
		StateSynced: a.cache.WaitForSync,
		MayDecide:   func(ctx context.Context) error { return a.health.waitOpen(ctx) },
		TTL:         a.policies.ReservationTTL,
		FinishedTTL: a.options.FinishedReservationTTL,
		Recorder:    a.broadcaster.recorder(),
		Log:         a.log,
	})
}
