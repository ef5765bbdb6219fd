package rest

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/julienschmidt/httprouter"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// reservations serves GET /v1/reservations.
func (a *API) reservations(w http.ResponseWriter, r *http.Request, _ httprouter.Params) error {
	values, err := query(r, "namespace", "name", "node", "scheduler", "pod", "limit", "continue")
	if err != nil {
		return err
	}
	limit, err := queryLimit(values)
	if err != nil {
		return err
	}
	return a.answer(w, r, func() (any, error) { return a.listReservations(limit, holdFilter(values)), nil })
}

// listReservations returns the reservations with holds that match.
func (a *API) listReservations(limit int, match func(*ledger.HoldView) bool) *reserver.ReservationsAnswer {
	views, revision := a.ledger.Holds()
	answer := reserver.ReservationsAnswer{Revision: revision, Reservations: []reserver.Reservation{}}
	list := &answer.Reservations
	for i := range views {
		view := &views[i]
		if view.InMemory() || !match(view) {
			continue
		}
		last := len(*list) - 1
		if last < 0 || (*list)[last].Namespace != view.Ref.Namespace || (*list)[last].Name != view.Ref.Name {
			if limit > 0 && len(*list) == limit {
				answer.Continue = (*list)[last].Namespace + "/" + (*list)[last].Name
				break
			}
			*list = append(*list, newReservation(view))
			last++
		}
		addSlot(&(*list)[last], a.ledger.Table(), view)
	}
	return &answer
}

// holdFilter returns whether a hold is asked for. pod is the only one that may
// use it, or one that uses it.
func holdFilter(values url.Values) func(*ledger.HoldView) bool {
	namespace, name, node := values.Get("namespace"), values.Get("name"), values.Get("node")
	scheduler, pod := values.Get("scheduler"), values.Get("pod")
	afterNamespace, afterName, _ := strings.Cut(values.Get("continue"), "/")
	return func(view *ledger.HoldView) bool {
		after := cmp.Or(cmp.Compare(view.Ref.Namespace, afterNamespace), cmp.Compare(view.Ref.Name, afterName))
		return (namespace == "" || view.Ref.Namespace == namespace) &&
			(name == "" || view.Ref.Name == name) &&
			(node == "" || view.Node == node) &&
			(scheduler == "" || view.Scheduler == scheduler) &&
			(pod == "" || isOf(view, pod)) && after > 0
	}
}

func isOf(view *ledger.HoldView, pod string) bool {
	for _, c := range view.Consumers {
		if c.Pod.Name == pod {
			return true
		}
	}
	return view.Pod.Name == pod
}

// holdsOn returns the slots on a node.
func (a *API) holdsOn(node string) []ledger.HoldView {
	views, _ := a.ledger.Holds()
	return slices.DeleteFunc(views, func(view ledger.HoldView) bool { return view.Node != node })
}
