package ledger

import "slices"

// HeldBack says which hold is in the way of a pod that fits none of the nodes:
// the one that keeps most of what is short, on the first of the nodes that would
// have room if it held nothing for others. ok is false where the pod fits a node,
// has a claim, or would not fit without the holds either. p.Node is not looked at.
func (l Reader) HeldBack(p *Placement, nodes []string) (ref HoldRef, node string, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.holds) == 0 || l.lookup(p.Pod) != nil || l.gone.has(p.Pod.UID) {
		return HoldRef{}, "", false
	}
	offers := newOffers(l.candidates(p))
	for _, name := range nodes {
		i, known := l.nodeIndex[name]
		if !known {
			continue
		}
		_, v := l.fitsAny(i, p, offers.on(i))
		if v.Reason == Fits {
			return HoldRef{}, "", false
		}
		if !ok && v.shortOfRoom() {
			if h := l.inTheWay(i, p, v); h != nil {
				ref, node, ok = h.Ref, name, true
			}
		}
	}
	return ref, node, ok
}

// inTheWay returns the hold that keeps most of what a pod lacks on a node, nil
// where the pod would not fit without any hold either.
func (l *account) inTheWay(i int32, p *Placement, v Verdict) *hold {
	holds := l.nodes[i].holds
	if len(holds) == 0 || v.Unlisted || !l.fitsWith(i, p, nil, holds) {
		return nil
	}
	keeps := func(h *hold) int64 {
		if v.Reason == InsufficientResource {
			return h.rest.Value(v.Column)
		}
		if v.Reason == InsufficientDevices {
			return h.keepsDevicesFor(p.Devices)
		}
		for k := range p.Request.Ports {
			if slices.ContainsFunc(h.Request.Ports, p.Request.Ports[k].CollidesWith) {
				return 1
			}
		}
		return 0
	}
	var most *hold
	for _, h := range holds {
		if amount := keeps(h); amount > 0 && (most == nil || amount > keeps(most)) {
			most = h
		}
	}
	return most
}
