package ledger

import (
	"slices"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// HeldBack says which slot is in the way of a pod that fits none of the nodes: the one that keeps most of what is
// short, on the first of the nodes that would have capacity if it held nothing for others. ok is false where the pod
// fits a node, has an allocation, or would not fit without the slots either. p.Node is not looked at.
func (l Reader) HeldBack(p *Placement, nodes []string) (ref SlotRef, node string, ok bool) {
	l.mu.Lock() // slots are taken off the account for the length of the question
	defer l.mu.Unlock()
	if len(l.slots) == 0 || l.find(p.Pod) != nil || l.gone.has(p.Pod.UID) {
		return SlotRef{}, "", false
	}
	offers, m := l.offersTo(p), l.limiterOf(p, p.Caller)
	for _, name := range nodes {
		i, known := l.nodeIndex[name]
		if !known {
			continue
		}
		_, v := l.fitAny(i, p, offers[i], &m)
		if v.Reason == Fits {
			return SlotRef{}, "", false
		}
		if !ok && v.Reason.OfCapacity() && !v.Unlisted {
			if h := l.inTheWay(i, p, v); h != nil {
				ref, node, ok = h.slot.ref, name, true
			}
		}
	}
	return ref, node, ok
}

// inTheWay returns the slot of a reservation that keeps most of what a pod lacks on a
// node, nil where the pod would not fit without any of them either.
func (l *account) inTheWay(i int32, p *Placement, v Verdict) *entry {
	var most *entry
	var amount int64
	held := l.nodes[i].reservedSlots()
	for _, h := range held {
		if keeps := h.keepsOf(p, v); keeps > amount {
			most, amount = h, keeps
		}
	}
	if most == nil {
		return nil
	}
	t := Trial{account: l}
	defer t.revert()
	for _, h := range held {
		t.take(h)
	}
	if l.fit(i, p, nil, nil).Reason != Fits {
		return nil
	}
	return most
}

// keepsOf returns how much a slot keeps of what a pod was refused for.
func (e *entry) keepsOf(p *Placement, v Verdict) int64 {
	switch {
	case v.Reason == InsufficientResource:
		return e.counts.Value(v.Column)
	case v.Reason == InsufficientDevices:
		return e.keepsDevicesFor(p.Devices)
	case slices.ContainsFunc(p.Request.Ports, func(o resources.HostPort) bool {
		return slices.ContainsFunc(e.request.Ports, o.CollidesWith)
	}):
		return 1
	default:
		return 0
	}
}
