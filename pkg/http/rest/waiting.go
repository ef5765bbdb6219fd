package rest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// waitingReservations are the Reservation objects that wait for capacity and are asked for, by namespace and name.
func (a *API) waitingReservations(q *query) (list []reserver.Reservation) {
	at := append(strings.SplitN(q.Get("continue"), "/", 3), "")
	for _, p := range a.o.PendingReservations() {
		r := newWaiting(&p)
		after := compareNames(&r, ledger.SlotRef{Namespace: at[0], Name: at[1]}) > 0
		if after && waitingMatches(q, p.Reservation) && q.sees(r.Namespace) {
			list = append(list, r)
		}
	}
	return list
}

// waitingMatches reports whether a Reservation that has no capacity is asked for. ?node= is one that a slot names.
func waitingMatches(q *query, r *v1alpha1.Reservation) bool {
	return q.has("namespace", r.Namespace) && q.has("name", r.Name) && q.has("scheduler", r.Spec.SchedulerName) &&
		slices.ContainsFunc(r.Spec.Slots, func(s v1alpha1.Slot) bool {
			pod := ""
			if s.Pod != nil {
				pod = s.Pod.Name
			}
			return q.has("node", s.NodeName) && q.has("pod", pod)
		})
}

func newWaiting(p *reservations.Pending) reserver.Reservation {
	r := p.Reservation
	waits := &reserver.PendingReservation{
		Since: r.CreationTimestamp.UTC(), Reason: p.Reason, Message: p.Message, SlotCount: len(r.Spec.Slots), Slot: p.Slot,
		Lacks: listOf(p.Lacks, func(l *ledger.Lack) reserver.SlotLacks { return reserver.SlotLacks(*l) }),
	}
	if waits.Reason == "" {
		waits.Reason, waits.Message = "NotTried", "it was not tried yet"
	}
	return reserver.Reservation{
		Namespace: r.Namespace, Name: r.Name, Durable: true, Scheduler: r.Spec.SchedulerName, Priority: p.Priority,
		Preemptible: r.Spec.Preemptible, Policy: cmp.Or(string(r.Spec.AllocatePolicy), string(ledger.Once)),
		Slots: []reserver.Slot{}, Pending: waits,
	}
}

// compareNames orders Reservation objects.
func compareNames(r *reserver.Reservation, than ledger.SlotRef) int {
	return cmp.Or(cmp.Compare(r.Namespace, than.Namespace), cmp.Compare(r.Name, than.Name))
}
