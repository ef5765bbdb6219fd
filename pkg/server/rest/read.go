package rest

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// revision serves GET /v1/revision.
func (a *API) revision(*query) (any, error) {
	return &reserver.RevisionAnswer{Revision: a.ledger.Revision()}, nil
}

// nodes serves GET /v1/nodes: the nodes after a name, all or those that are, or are
// not, overcommitted.
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
	views, revision := a.ledger.Nodes()
	answer := reserver.NodesAnswer{Revision: revision, Nodes: []reserver.Node{}}
	for i := range views {
		view := &views[i]
		if view.Name <= after || (!all && view.Overcommitted() != overcommitted) {
			continue
		}
		if len(answer.Nodes) == limit {
			answer.Continue = answer.Nodes[limit-1].Name
			break
		}
		answer.Nodes = append(answer.Nodes, newNode(view))
	}
	return &answer, nil
}

// node serves GET /v1/nodes/{name}.
func (a *API) node(q *query) (any, error) {
	name := q.path.ByName("name")
	revision := a.ledger.Revision() // what follows is at least as new
	slots := a.slotsOn(name)        // before the allocations: a slot turns into one
	view, allocations, ok := a.ledger.Node(name)
	if !ok {
		return nil, httpjson.Errorf(http.StatusNotFound,
			"node \"%s\" is not in the ledger: GET /v1/nodes lists those that are", httpjson.Clip(name))
	}
	answer := reserver.NodeAnswer{
		Revision: revision, Node: newNode(&view), Allocations: []reserver.Allocation{}, Slots: []reserver.NodeSlot{},
	}
	for _, s := range sharesOf(allocations, slots) {
		answer.Allocations = append(answer.Allocations, newAllocation(a.ledger.Table(), &s))
	}
	for i := range slots {
		if !slots[i].InMemory() {
			answer.Slots = append(answer.Slots, newNodeSlot(a.ledger.Table(), &slots[i]))
		}
	}
	return &answer, nil
}

// slotsOn returns the slots on a node.
func (a *API) slotsOn(node string) []ledger.SlotView {
	views, _ := a.ledger.Slots()
	return slices.DeleteFunc(views, func(view ledger.SlotView) bool { return view.Node != node })
}

// allocations serves GET /v1/allocations: the allocations that match, and what is kept for pods in
// memory, on one node or on all.
func (a *API) allocations(q *query) (any, error) {
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	states := []string{ledger.ReservedState, ledger.Binding.String(), ledger.Bound.String()}
	if state := q.Get("state"); state != "" && !slices.Contains(states, state) {
		return nil, badRequest("state \"%s\" is not known: send %s", httpjson.Clip(state), strings.Join(states, ", "))
	}
	answer := reserver.AllocationsAnswer{Revision: a.ledger.Revision(), Allocations: []reserver.Allocation{}} // what follows is at least as new
	var slots []ledger.SlotView
	var allocations []ledger.AllocationView
	if node := q.Get("node"); node != "" {
		slots = a.slotsOn(node)
		_, allocations, _ = a.ledger.Node(node)
	} else {
		slots, _ = a.ledger.Slots()
		allocations, _ = a.ledger.Allocations()
	}
	var last *share
	for _, s := range sharesOf(allocations, slots) {
		if !matches(q, &s) {
			continue
		}
		if len(answer.Allocations) == limit {
			answer.Continue = last.Pod.Namespace + "/" + last.Pod.Name + "/" + string(last.Pod.UID)
			break
		}
		last = &s
		answer.Allocations = append(answer.Allocations, newAllocation(a.ledger.Table(), &s))
	}
	return &answer, nil
}

// matches reports whether an allocation is asked for. The parts of ?continue= are compared
// one by one: as a whole, the key of pod "a-b" is less than that of pod "a".
func matches(q *query, s *share) bool {
	namespace, rest, _ := strings.Cut(q.Get("continue"), "/")
	name, uid, _ := strings.Cut(rest, "/")
	after := cmp.Or(
		cmp.Compare(s.Pod.Namespace, namespace), cmp.Compare(s.Pod.Name, name), cmp.Compare(string(s.Pod.UID), uid),
	)
	return q.has("namespace", s.Pod.Namespace) && q.has("pod", s.Pod.Name) && q.has("scheduler", s.Scheduler) &&
		q.has("state", s.State.OrReserved()) && after > 0
}

// reservations serves GET /v1/reservations: those with slots that match.
func (a *API) reservations(q *query) (any, error) {
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	views, revision := a.ledger.Slots()
	answer := reserver.ReservationsAnswer{Revision: revision, Reservations: []reserver.Reservation{}}
	list := &answer.Reservations
	for i := range views {
		view := &views[i]
		if view.InMemory() || !slotMatches(q, view) {
			continue
		}
		last := len(*list) - 1
		if last < 0 || (*list)[last].Namespace != view.Ref.Namespace || (*list)[last].Name != view.Ref.Name {
			if len(*list) == limit {
				answer.Continue = (*list)[last].Namespace + "/" + (*list)[last].Name
				break
			}
			*list = append(*list, newReservation(view))
			last++
		}
		addSlot(&(*list)[last], a.ledger.Table(), view)
	}
	return &answer, nil
}

// slotMatches reports whether a slot is asked for. ?pod= is the only one that may
// use it, or one that uses it.
func slotMatches(q *query, view *ledger.SlotView) bool {
	namespace, name, _ := strings.Cut(q.Get("continue"), "/")
	after := cmp.Or(cmp.Compare(view.Ref.Namespace, namespace), cmp.Compare(view.Ref.Name, name))
	used := slices.ContainsFunc(view.Consumers, func(c ledger.Consumer) bool { return c.Pod.Name == q.Get("pod") })
	return q.has("namespace", view.Ref.Namespace) && q.has("name", view.Ref.Name) && q.has("node", view.Node) &&
		q.has("scheduler", view.Scheduler) && (used || q.has("pod", view.Pod.Name)) && after > 0
}
