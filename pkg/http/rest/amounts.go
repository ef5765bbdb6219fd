package rest

import (
	"strconv"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// requestAmounts names the amounts of a request.
func requestAmounts(t *resources.Table, r *resources.Request) reserver.Amounts {
	amounts := make(reserver.Amounts, len(r.Amounts)+len(r.Unlisted))
	addAmounts(amounts, t, r)
	return amounts
}

// addAmounts adds the amounts of a request to those of others.
func addAmounts(amounts reserver.Amounts, t *resources.Table, r *resources.Request) {
	for _, a := range r.Amounts {
		name := string(t.Name(a.Column))
		amounts[name], _ = resources.Add(amounts[name], a.Value)
	}
	for _, a := range r.Unlisted {
		amounts[string(a.Name)], _ = resources.Add(amounts[string(a.Name)], a.Value)
	}
}

// hostPortNames spells out the host ports of a request.
func hostPortNames(r *resources.Request) []string {
	var names []string
	for _, p := range r.Capacity().Ports {
		names = append(names, string(p.Protocol)+"/"+p.IP+":"+strconv.Itoa(int(p.Port)))
	}
	return names
}
