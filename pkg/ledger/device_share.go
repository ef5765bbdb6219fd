package ledger

import (
	"slices"

	"github.com/globalreserve/globalreserve/pkg/devices"
)

// What follows is for plans of several pods or slots with devices. One after another, each is given what suits it best,
// and that may be the only device for another one. A plan that is to be granted as a whole and lacks devices that way
// is tried once more, with devices that are given to all of them together.

// maxShared bounds what is shared out on one node: a plan that asks for more does not fit.
const maxShared = 256

// shareOut gives the free devices of the nodes to all slots of a plan together. It returns the slots with their shares,
// or nil where they do not fit, or there is nothing to share.
func (l *account) shareOut(slots []Slot) []Slot {
	byNode := map[string][]*Slot{}
	several := false
	shared := slices.Clone(slots)
	for k := range shared {
		if spec := &shared[k]; l.wantsShare(spec) {
			byNode[spec.Node] = append(byNode[spec.Node], spec)
			several = several || len(byNode[spec.Node]) > 1
		}
	}
	if !several {
		return nil
	}
	for node, parts := range byNode {
		i, ok := l.nodeIndex[node]
		if !ok || l.nodes[i].devices == nil {
			return nil
		}
		n := l.nodes[i]
		var requests []*devices.Request
		for _, spec := range parts {
			requests = append(requests, spec.Devices.Requests...)
		}
		if len(requests) > maxShared {
			return nil
		}
		choice, v := n.devices.pool.Choose(n.devices.free, nil, requests)
		if v.Reason != devices.Fits {
			return nil
		}
		for _, spec := range parts {
			spec.share = n.chosen(spec.Devices, choice)
			choice = choice[len(spec.Devices.Requests):]
		}
	}
	return shared
}

// wantsShare reports whether a slot asks for devices and is not there yet, and its pod has nothing
// yet and no slot that it may use.
func (l *account) wantsShare(spec *Slot) bool {
	p := spec.Placement()
	there := l.slots[spec.Ref] != nil || (p.Pod.Name != "" && l.find(p.Pod) != nil)
	return p.Devices != nil && p.Devices.Err == "" && !there && len(l.candidates(&p)) == 0
}

// allotSlot is allot for a slot, which has its share as long as that is free.
func (l *account) allotSlot(i int32, spec *Slot, h *entry) *deviceGrant {
	if n := l.nodes[i]; spec.share != nil && n.devices != nil {
		free := true
		n.devices.visit(spec.share, func(k int) { free = free && n.devices.free.Has(k) })
		if free {
			return &deviceGrant{request: spec.Devices, given: spec.share}
		}
	}
	return l.allot(i, spec.Devices, h)
}
