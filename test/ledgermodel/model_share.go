package ledgermodel

import (
	"slices"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// lackDevices reports whether something was refused for want of devices.
func lackDevices(rejections []ledger.Rejection) bool {
	return slices.ContainsFunc(rejections, func(r ledger.Rejection) bool { return r.Reason == ledger.InsufficientDevices })
}

// asksOf lists the slots of a plan whose devices can be chosen together: those that are not
// there yet, of pods that have nothing and may use nothing that is held.
func asksOf(m *Model, plan *ledger.Plan) []ledger.Placement {
	asks := make([]ledger.Placement, len(plan.Slots))
	for k := range plan.Slots {
		spec := &plan.Slots[k]
		asks[k] = *asPlacement(spec)
		there := !spec.InMemory() && m.slot(spec.Ref) != nil
		p := &asks[k]
		if there || (p.Pod.Name != "" && m.find(p.Pod) != nil) || len(m.candidates(p)) > 0 ||
			(p.Devices != nil && p.Devices.Err != "") {
			p.Devices = nil
		}
	}
	return asks
}

// shares chooses devices for all placements together, nil where that cannot be, or no two
// are on one node.
func (m *Model) shares(asks []ledger.Placement) [][]ledger.GivenDevices {
	shares := make([][]ledger.GivenDevices, len(asks))
	most := 0
	for k := range asks {
		if asks[k].Devices == nil || shares[k] != nil {
			continue
		}
		node := asks[k].Node
		together := func(o int) bool { return asks[o].Devices != nil && asks[o].Node == node }
		var requests []*devices.Request
		parts := 0
		for o := range asks {
			if together(o) {
				requests = append(requests, asks[o].Devices.Requests...)
				parts++
			}
		}
		most = max(most, parts)
		p, free, _ := m.pool(node, nil)
		choice, v := p.Choose(free, nil, requests)
		if v.Reason != devices.Fits || p.Len() == 0 {
			return nil
		}
		for o := range asks {
			if together(o) {
				count := len(asks[o].Devices.Requests)
				shares[o] = named(p, asks[o].Devices, choice[:count])
				choice = choice[count:]
			}
		}
	}
	if most < 2 {
		return nil
	}
	return shares
}

// freeShare returns what is meant for the placement that is tried, unless somebody has some
// of it.
func (m *Model) freeShare(node string) []ledger.GivenDevices {
	p, free, _ := m.pool(node, nil)
	for k := range p.Len() {
		if has(m.share, p.Device(k)) && !free.Has(k) {
			return nil
		}
	}
	return m.share
}
