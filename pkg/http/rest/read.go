package rest

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// revision serves GET /v1/revision.
func (a *API) revision(*query) (any, error) {
	return &reserver.RevisionAnswer{Revision: a.o.Ledger.Revision()}, nil
}

// nodes serves GET /v1/nodes: the nodes after a name that match.
func (a *API) nodes(q *query) (any, error) {
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	all, after := q.Get("overcommitted") == "", q.Get("continue")
	overcommitted, err := strconv.ParseBool(cmp.Or(q.Get("overcommitted"), "false"))
	if err != nil {
		return nil, badRequest("overcommitted \"%s\" is neither true nor false", httpjson.Clip(q.Get("overcommitted")))
	}
	wanted, err := q.nodeFilter()
	if err != nil {
		return nil, err
	}
	limit = min(limit, maxNodes)
	views, revision := a.o.Ledger.Nodes()
	answer := reserver.NodesAnswer{Revision: revision, Nodes: []reserver.Node{}}
	for i := range views {
		view := &views[i]
		if view.Name <= after || (!all && view.Overcommitted() != overcommitted) || !wanted(view) {
			continue
		}
		if len(answer.Nodes) == limit {
			answer.Continue = answer.Nodes[limit-1].Name
			break
		}
		answer.Nodes = append(answer.Nodes, newNode(view))
		q.hideNode(&answer.Nodes[len(answer.Nodes)-1])
	}
	return &answer, nil
}

// node serves GET /v1/nodes/{name}.
func (a *API) node(q *query) (any, error) {
	name := q.path.ByName("name")
	found, ok := a.o.Ledger.NodeSnapshot(name)
	if !ok {
		return nil, httpjson.Errorf(http.StatusNotFound,
			"node \"%s\" is not in the ledger: GET /v1/nodes lists those that are", httpjson.Clip(name))
	}
	account := a.newSnapshot(found.Revision, found.Nodes, found.Allocations, found.Slots)
	answer := reserver.NodeAnswer{
		Revision: account.Revision, Node: account.Nodes[0], Allocations: account.Allocations, Slots: account.Slots,
		DRADevices: newDRADevices(a.o.ResourceClaims, name),
	}
	q.hideNode(&answer.Node)
	q.hideDRA(answer.DRADevices)
	for i := range answer.Allocations {
		q.hideAllocation(&answer.Allocations[i])
	}
	for i := range answer.Slots {
		q.hideSlot(&answer.Slots[i])
	}
	return &answer, nil
}

// allocations serves GET /v1/allocations: those that match, on one node or on all, of
// the namespaces that the caller may see.
func (a *API) allocations(q *query) (any, error) {
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	states := []string{ledger.Binding.String(), ledger.Bound.String()}
	if state := q.Get("state"); state != "" && !slices.Contains(states, state) {
		return nil, badRequest("state \"%s\" is not known: send %s", httpjson.Clip(state), strings.Join(states, ", "))
	}
	// what follows is at least as new
	answer := reserver.AllocationsAnswer{Revision: a.o.Ledger.Revision(), Allocations: []reserver.Allocation{}}
	var allocations []ledger.AllocationView
	if node := q.Get("node"); node != "" {
		_, allocations, _ = a.o.Ledger.Node(node)
	} else {
		allocations, _ = a.o.Ledger.Allocations()
	}
	for i := range allocations {
		if !matches(q, &allocations[i]) || !q.sees(allocations[i].Pod.Namespace) {
			continue
		}
		if len(answer.Allocations) == limit {
			last := &answer.Allocations[limit-1]
			answer.Continue = last.Namespace + "/" + last.Pod + "/" + last.UID
			break
		}
		answer.Allocations = append(answer.Allocations, newAllocation(a.o.Ledger.Table(), &allocations[i]))
	}
	return &answer, nil
}

// matches reports whether an allocation is asked for. The parts of ?continue= are compared
// one by one: as a whole, the key of pod "a-b" is less than that of pod "a".
func matches(q *query, s *ledger.AllocationView) bool {
	namespace, rest, _ := strings.Cut(q.Get("continue"), "/")
	name, uid, _ := strings.Cut(rest, "/")
	after := cmp.Or(
		cmp.Compare(s.Pod.Namespace, namespace), cmp.Compare(s.Pod.Name, name), cmp.Compare(string(s.Pod.UID), uid),
	)
	return q.has("namespace", s.Pod.Namespace) && q.has("pod", s.Pod.Name) && q.has("scheduler", s.Scheduler) &&
		q.has("state", s.State.String()) && after > 0
}

// reservations serves GET /v1/reservations: those with slots that match, and those that wait for capacity. Those in
// memory come first, one for each pod.
func (a *API) reservations(q *query) (any, error) {
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	views, revision := a.o.Ledger.Slots()
	answer := reserver.ReservationsAnswer{Revision: revision, Reservations: []reserver.Reservation{}}
	if q.Get("continue") == "" {
		answer.Drains = a.drains(q)
	}
	list := &answer.Reservations
	add := func(r reserver.Reservation) bool {
		if len(*list) == limit {
			answer.Continue = continueAfter(&(*list)[limit-1])
			return false
		}
		*list = append(*list, r)
		return true
	}
	waiting := a.waitingReservations(q)
	for i := range views {
		view := &views[i]
		if !slotMatches(q, view) || !q.seesSlot(view) {
			continue
		}
		last := len(*list) - 1
		if last < 0 || view.InMemory() || (*list)[last].Namespace != view.Ref.Namespace ||
			(*list)[last].Name != view.Ref.Name {
			for ; len(waiting) > 0 && compareNames(&waiting[0], view.Ref) <= 0; waiting = waiting[1:] {
				if compareNames(&waiting[0], view.Ref) < 0 && !add(waiting[0]) {
					return &answer, nil
				}
			}
			if !add(newReservation(a.o.Clock, view)) {
				return &answer, nil
			}
		}
		addSlot(&(*list)[len(*list)-1], a.o.Ledger.Table(), a.o.Clock, view)
	}
	for i := range waiting {
		if !add(waiting[i]) {
			break
		}
	}
	return &answer, nil
}

// continueAfter is the ?continue= by which a client goes on after a reservation. A reservation in memory has no name.
func continueAfter(r *reserver.Reservation) string {
	if r.Durable {
		return r.Namespace + "/" + r.Name
	}
	return "//" + r.Namespace + "/" + r.Slots[0].Pod + "/" + r.Slots[0].UID
}

// slotMatches reports whether a slot is asked for. ?pod= is the only one that may use it, or one that uses it.
func slotMatches(q *query, view *ledger.SlotView) bool {
	at := append(strings.SplitN(q.Get("continue"), "/", 5), make([]string, 4)...)
	after := cmp.Or(cmp.Compare(view.Ref.Namespace, at[0]), cmp.Compare(view.Ref.Name, at[1]))
	if after == 0 {
		after = cmp.Or(cmp.Compare(view.Pod.Namespace, at[2]), cmp.Compare(view.Pod.Name, at[3]),
			cmp.Compare(string(view.Pod.UID), at[4]))
	}
	used := slices.ContainsFunc(view.Consumers, func(c ledger.Consumer) bool { return c.Pod.Name == q.Get("pod") })
	return q.has("namespace", namespaceOf(view)) && q.has("name", view.Ref.Name) && q.has("node", view.Node) &&
		q.has("scheduler", view.Scheduler) && (used || q.has("pod", view.Pod.Name)) && after > 0
}
