package ledger

import "github.com/globalreserve/globalreserve/pkg/devices"

// What follows is for plans of several pods or slots with devices. One after another, each is given what suits it best,
// and that may be the only device for another one. A plan that is to be granted as a whole and lacks devices that way
// is tried once more, with devices that are given to all of them together.

// deviceAsk is a part of a plan: which devices are wanted on which node; nil where they are not to be shared out.
type deviceAsk struct {
	node    string
	request *DeviceRequest
}

// maxShared bounds what is shared out on one node: a plan that asks for more does not fit.
const maxShared = 256

// shareOut gives the free devices of the nodes to all parts of a plan together. It returns
// nil where they do not fit, or there is nothing to share.
func (l *account) shareOut(asks []deviceAsk) [][]GivenDevices {
	byNode := map[string][]int{}
	several := false
	for k := range asks {
		if asks[k].request != nil {
			byNode[asks[k].node] = append(byNode[asks[k].node], k)
			several = several || len(byNode[asks[k].node]) > 1
		}
	}
	if !several {
		return nil
	}
	shares := make([][]GivenDevices, len(asks))
	for node, parts := range byNode {
		i, ok := l.nodeIndex[node]
		if !ok || l.nodes[i].devices == nil {
			return nil
		}
		n := l.nodes[i]
		var requests []*devices.Request
		for _, k := range parts {
			requests = append(requests, asks[k].request.Requests...)
		}
		if len(requests) > maxShared {
			return nil
		}
		choice, v := n.devices.pool.Choose(n.devices.free, nil, requests)
		if v.Reason != devices.Fits {
			return nil
		}
		for _, k := range parts {
			count := len(asks[k].request.Requests)
			shares[k] = n.chosen(asks[k].request, choice[:count])
			choice = choice[count:]
		}
	}
	return shares
}

// wantsShare returns what a slot asks for if it is not there yet, and its pod has nothing
// yet and no slot that it may use.
func (l *account) wantsShare(spec *Slot) *DeviceRequest {
	p := spec.Placement()
	there := l.slots[spec.Ref] != nil || (p.Pod.Name != "" && l.find(p.Pod) != nil)
	if p.Devices == nil || p.Devices.Err != "" || there || len(l.candidates(&p)) > 0 {
		return nil
	}
	return p.Devices
}

// takeShare is allot for a part of a plan that has a share, as long as that is free.
func (l *account) takeShare(i int32, r *DeviceRequest, share []GivenDevices, h *entry) *deviceGrant {
	if n := l.nodes[i]; share != nil && n.devices != nil {
		free := true
		n.devices.visit(share, func(k int) { free = free && n.devices.free.Has(k) })
		if free {
			return &deviceGrant{request: r, given: share}
		}
	}
	return l.allot(i, r, h)
}
