package rest

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/julienschmidt/httprouter"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// revision serves GET /v1/revision.
func (a *API) revision(w http.ResponseWriter, r *http.Request, _ httprouter.Params) error {
	if err := noQuery(r); err != nil {
		return err
	}
	httpjson.Write(w, http.StatusOK, &reserver.RevisionAnswer{Revision: a.ledger.Revision()})
	return nil
}

// nodes serves GET /v1/nodes.
func (a *API) nodes(w http.ResponseWriter, r *http.Request, _ httprouter.Params) error {
	values, err := query(r, "overcommitted", "limit", "continue")
	if err != nil {
		return err
	}
	limit, err := queryLimit(values)
	if err != nil {
		return err
	}
	overcommitted, err := queryBool(values, "overcommitted")
	if err != nil {
		return err
	}
	return a.answer(w, r, func() (any, error) { return a.listNodes(limit, overcommitted, values.Get("continue")), nil })
}

// listNodes returns the nodes after a name, all or those that are, or are not,
// overcommitted.
func (a *API) listNodes(limit int, overcommitted *bool, after string) *reserver.NodesAnswer {
	views, revision := a.ledger.Nodes()
	answer := reserver.NodesAnswer{Revision: revision, Nodes: []reserver.Node{}}
	for i := range views {
		view := &views[i]
		if view.Name <= after || (overcommitted != nil && view.Overcommitted() != *overcommitted) {
			continue
		}
		if limit > 0 && len(answer.Nodes) == limit {
			answer.Continue = answer.Nodes[limit-1].Name
			break
		}
		answer.Nodes = append(answer.Nodes, newNode(view))
	}
	return &answer
}

// node serves GET /v1/nodes/{name}.
func (a *API) node(w http.ResponseWriter, r *http.Request, params httprouter.Params) error {
	if err := noQuery(r); err != nil {
		return err
	}
	return a.answer(w, r, func() (any, error) { return a.oneNode(params.ByName("name")) })
}

func (a *API) oneNode(name string) (any, error) {
	revision := a.ledger.Revision() // what follows is at least as new
	holds := a.holdsOn(name)        // before the claims: a slot turns into one
	view, claims, ok := a.ledger.Node(name)
	if !ok {
		return nil, httpjson.Errorf(http.StatusNotFound,
			"node \"%s\" is not in the ledger: GET /v1/nodes lists those that are", httpjson.Clip(name))
	}
	shares := sharesOf(claims, holds)
	answer := reserver.NodeAnswer{
		Revision: revision, Node: newNode(&view), Claims: make([]reserver.Claim, 0, len(shares)), Slots: []reserver.NodeSlot{},
	}
	for i := range shares {
		answer.Claims = append(answer.Claims, newClaim(a.ledger.Table(), &shares[i]))
	}
	for i := range holds {
		if !holds[i].InMemory() {
			answer.Slots = append(answer.Slots, newNodeSlot(a.ledger.Table(), &holds[i]))
		}
	}
	return &answer, nil
}

// claims serves GET /v1/claims.
func (a *API) claims(w http.ResponseWriter, r *http.Request, _ httprouter.Params) error {
	values, err := query(r, "namespace", "pod", "node", "scheduler", "state", "limit", "continue")
	if err != nil {
		return err
	}
	limit, err := queryLimit(values)
	if err != nil {
		return err
	}
	match, err := claimFilter(values)
	if err != nil {
		return err
	}
	return a.answer(w, r, func() (any, error) { return a.listClaims(limit, values.Get("node"), match), nil })
}

// listClaims returns the claims that match, on one node or on all.
func (a *API) listClaims(limit int, node string, match func(*share) bool) *reserver.ClaimsAnswer {
	views, revision := a.someClaims(node)
	answer := reserver.ClaimsAnswer{Revision: revision, Claims: []reserver.Claim{}}
	last := ""
	for i := range views {
		view := &views[i]
		if !match(view) {
			continue
		}
		if limit > 0 && len(answer.Claims) == limit {
			answer.Continue = last
			break
		}
		last = claimKey(view)
		answer.Claims = append(answer.Claims, newClaim(a.ledger.Table(), view))
	}
	return &answer
}

// someClaims returns the claims on one node, or all where node is empty, and what is kept
// for pods in memory.
func (a *API) someClaims(node string) ([]share, uint64) {
	revision := a.ledger.Revision() // what follows is at least as new
	if node == "" {
		slots, _ := a.ledger.Holds()
		claims, _ := a.ledger.Claims()
		return sharesOf(claims, slots), revision
	}
	slots := a.holdsOn(node)
	_, claims, _ := a.ledger.Node(node)
	return sharesOf(claims, slots), revision
}

// claimFilter returns whether a claim is asked for.
func claimFilter(values url.Values) (func(*share) bool, error) {
	state := values.Get("state")
	known := []string{ledger.ReservedState, ledger.Binding.String(), ledger.Bound.String()}
	if state != "" && !slices.Contains(known, state) {
		return nil, badRequest("state \"%s\" is not known: send %s", httpjson.Clip(state), strings.Join(known, ", "))
	}
	namespace, pod, scheduler := values.Get("namespace"), values.Get("pod"), values.Get("scheduler")
	after := values.Get("continue")
	return func(view *share) bool {
		return (namespace == "" || view.Pod.Namespace == namespace) &&
			(pod == "" || view.Pod.Name == pod) &&
			(scheduler == "" || view.Scheduler == scheduler) &&
			(state == "" || view.State.OrReserved() == state) &&
			(after == "" || comesAfter(view, after))
	}, nil
}

// claimKey is where a page of claims ended.
func claimKey(view *share) string {
	return view.Pod.Namespace + "/" + view.Pod.Name + "/" + string(view.Pod.UID)
}

// comesAfter reports whether a claim is listed after the one with that key. The
// parts are compared one by one: as a whole, the key of pod "a-b" is less than
// that of pod "a".
func comesAfter(view *share, key string) bool {
	namespace, rest, _ := strings.Cut(key, "/")
	name, uid, _ := strings.Cut(rest, "/")
	return cmp.Or(
		cmp.Compare(view.Pod.Namespace, namespace),
		cmp.Compare(view.Pod.Name, name),
		cmp.Compare(string(view.Pod.UID), uid),
	) > 0
}
