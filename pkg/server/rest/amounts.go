package rest

import (
	"strconv"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// requestAmounts names the amounts of a request.
func requestAmounts(t *resources.Table, r *resources.Request) reserver.Amounts {
	amounts := make(reserver.Amounts, len(r.Amounts)+len(r.Unlisted))
	for _, a := range r.Amounts {
		amounts[string(t.Name(a.Column))] = a.Value
	}
	for _, a := range r.Unlisted {
		amounts[string(a.Name)] = a.Value
	}
	return amounts
}

// hostPortNames spells out the host ports of a request.
func hostPortNames(r *resources.Request) []string {
	var names []string
	for _, p := range r.Ports {
		names = append(names, string(p.Protocol)+"/"+p.IP+":"+strconv.Itoa(int(p.Port)))
	}
	return names
}
