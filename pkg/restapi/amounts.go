package restapi

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// requestAmounts names the amounts of a request.
func requestAmounts(t *resources.Table, r *resources.Request) Amounts {
	amounts := make(Amounts, len(r.Amounts)+len(r.Unlisted))
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

// relisted returns the request with every resource in its column. A request made
// before any node offered a resource has it unlisted, and is kept that way with
// the pod.
func relisted(t *resources.Table, r *resources.Request) *resources.Request {
	if len(r.Unlisted) == 0 {
		return r
	}
	fresh := *r
	fresh.Amounts, fresh.Unlisted = slices.Clone(r.Amounts), nil
	for _, u := range r.Unlisted {
		if column, ok := t.Lookup(u.Name); ok {
			fresh.Amounts = append(fresh.Amounts, resources.Amount{Column: column, Value: u.Value})
		} else {
			fresh.Unlisted = append(fresh.Unlisted, u)
		}
	}
	slices.SortFunc(fresh.Amounts, func(a, b resources.Amount) int { return cmp.Compare(a.Column, b.Column) })
	return &fresh
}
