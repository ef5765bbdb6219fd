package rest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// gangs serves GET /v1/gangs: those of the namespaces that the caller may see, all or those in one state.
func (a *API) gangs(q *query) (any, error) {
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	if state := q.Get("state"); state != "" && !slices.Contains(decide.GangStates, state) {
		return nil, badRequest("state \"%s\" is not known: send one of %v", httpjson.Clip(state), decide.GangStates)
	}
	// what follows is at least as new
	answer := reserver.GangsAnswer{Revision: a.o.Ledger.Revision(), Gangs: []reserver.Gang{}}
	views := a.o.Arbiter.Gangs(func(namespace string) bool { return q.has("namespace", namespace) && q.sees(namespace) })
	for i := range views {
		v := &views[i]
		if !q.has("state", v.State) || !q.isAfter(v) {
			continue
		}
		if len(answer.Gangs) == limit {
			last := &answer.Gangs[limit-1]
			answer.Continue = last.Namespace + "/" + last.Kind + "/" + last.Name
			break
		}
		answer.Gangs = append(answer.Gangs, *v)
	}
	return &answer, nil
}

// isAfter reports whether a gang comes after that of ?continue=. A kind's name has no slash; a gang's may.
func (q *query) isAfter(v *reserver.Gang) bool {
	at := append(strings.SplitN(q.Get("continue"), "/", 3), make([]string, 2)...)
	return cmp.Or(cmp.Compare(v.Namespace, at[0]), cmp.Compare(v.Name, at[2]), cmp.Compare(v.Kind, at[1])) > 0
}
