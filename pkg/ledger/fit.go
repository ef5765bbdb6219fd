package ledger

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// fits checks a request against a node's free room. It allocates nothing, and
// its cost does not depend on how many pods are on the node.
func (l *account) fits(i int32, req *resources.Request) Verdict {
	flags := l.flags[i]
	if flags&nodeKnown == 0 {
		return Verdict{Reason: NodeUnknown}
	}
	if flags&nodeCordoned != 0 && !req.ToleratesUnschedulable {
		return Verdict{Reason: NodeUnschedulable}
	}
	row := l.row(i)
	for k := range req.Amounts {
		a := &req.Amounts[k]
		if int(a.Column) >= len(row) || a.Value > row[a.Column] {
			return Verdict{Reason: InsufficientResource, Column: a.Column}
		}
	}
	if len(req.Unlisted) > 0 {
		return Verdict{Reason: InsufficientResource, Unlisted: true}
	}
	if len(req.Ports) > 0 && l.portTaken(i, req, nil) != nil {
		return Verdict{Reason: HostPortConflict}
	}
	return Verdict{Reason: Fits}
}

// fitsFree checks a pod against a node's free room and devices.
func (l *account) fitsFree(i int32, p *Placement) Verdict {
	if p.Devices == nil {
		return l.fits(i, p.Request)
	}
	if l.flags[i]&nodeKnown == 0 {
		return Verdict{Reason: NodeUnknown}
	}
	if v := l.claimsUsable(p, &except{}); v.Reason != Fits {
		return v
	}
	if v := l.fits(i, p.Request); v.Reason != Fits {
		return v
	}
	return l.fitsDevices(i, p, &except{})
}

// fitsInPlace checks whether a reservation can be used by its pod for what that asks
// for now. That fails where the node has vanished or lost room since it was made:
// the kubelet would reject the pod. A node cordoned since does not matter.
// Claims in other states are in use already.
func (l *account) fitsInPlace(c *claim, p *Placement) Verdict {
	if c.state != Reserved {
		return Verdict{Reason: Fits}
	}
	if p.Devices != nil && p.Devices.Err != "" {
		return Verdict{Reason: DeviceClaimUnusable}
	}
	req := p.Request
	if l.flags[c.node]&nodeKnown == 0 {
		return Verdict{Reason: NodeUnknown}
	}
	for k := range req.Amounts {
		a := &req.Amounts[k]
		var rest int64
		if c.hold != nil {
			rest = c.hold.restWithout(c, a.Column)
		}
		exceeds := c.hold != nil && c.hold.restricts(a.Column) && a.Value > rest
		if exceeds || a.Value-min(rest, a.Value) > l.freeWithout(c.node, a.Column, c, nil) {
			return Verdict{Reason: InsufficientResource, Column: a.Column}
		}
	}
	if len(req.Unlisted) > 0 {
		return Verdict{Reason: InsufficientResource, Unlisted: true}
	}
	if len(req.Ports) > 0 && l.portTaken(c.node, req, c.uses) != nil {
		return Verdict{Reason: HostPortConflict}
	}
	return l.devicesInPlace(c, p)
}

// uses reports whether the use of a host port is the claim's, or of the hold the
// claim uses.
func (c *claim) uses(u portUse) bool {
	return u.claim == c || (c.hold != nil && u.hold == c.hold)
}

// portTaken returns the first host port of the request that a claim or a hold on
// the node collides with, or nil. Uses for which skip is true do not count.
func (l *account) portTaken(i int32, req *resources.Request, skip func(portUse) bool) *resources.HostPort {
	n := l.nodes[i]
	for k := range req.Ports {
		p := &req.Ports[k]
		for _, u := range n.ports[p.PortKey] {
			if skip != nil && skip(u) {
				continue
			}
			if p.CollidesWith(resources.HostPort{PortKey: p.PortKey, IP: u.ip}) {
				return p
			}
		}
	}
	return nil
}

// AppendFit appends one Verdict per node name to dst: whether the pod could be
// placed there now, with one of its holds or without. p.Node is not looked at. A
// pod that already has a claim fits no other node than the claim's, and that one
// as long as the claim could be redeemed.
func (l Reader) AppendFit(dst []Verdict, p *Placement, nodes []string) []Verdict {
	l.mu.RLock()
	defer l.mu.RUnlock()
	own := l.lookup(p.Pod)
	gone := own == nil && l.gone.has(p.Pod.UID)
	offers := newOffers(l.candidates(p))
	for _, name := range nodes {
		i, known := l.nodeIndex[name]
		switch {
		case gone:
			dst = append(dst, Verdict{Reason: PodGone})
		case !known:
			dst = append(dst, Verdict{Reason: NodeUnknown})
		case own != nil && own.node == i:
			dst = append(dst, l.fitsInPlace(own, p))
		case own != nil:
			dst = append(dst, Verdict{Reason: ClaimedElsewhere})
		default:
			_, v := l.fitsAny(i, p, offers.on(i))
			dst = append(dst, v)
		}
	}
	return dst
}

// Refusals returns the nodes that exist and have no room for the pod, with the reasons,
// and how many nodes exist: where a pod is to be looked at on many nodes, one look at all
// of them costs much less than AppendFit for each. ok is false where more than most
// refuse it, or where the answer is not only about room: the pod has a claim, there is a
// hold it might use, or it is gone.
func (l Reader) Refusals(p *Placement, most int) (refused map[string]Reason, nodes int, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.lookup(p.Pod) != nil || l.gone.has(p.Pod.UID) || len(l.candidates(p)) > 0 {
		return nil, 0, false
	}
	for i, flags := range l.flags {
		if flags&nodeKnown == 0 {
			continue
		}
		nodes++
		v := l.fitsFree(int32(i), p)
		if v.Reason == Fits {
			continue
		}
		if len(refused) == most {
			return nil, 0, false
		}
		if refused == nil {
			refused = map[string]Reason{}
		}
		refused[l.nodes[i].name] = v.Reason
	}
	return refused, nodes, true
}

// FitAll calls visit for every node that exists, in no particular order, with
// whether the pod fits its free room. It does not look at a claim the pod may have,
// nor at holds it may use, and p.Node is not looked at. visit must not call the ledger.
func (l Reader) FitAll(p *Placement, visit func(node string, v Verdict)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if p.Devices == nil { // as nearly all pods: asked once, not for every node
		req := p.Request
		for i, flags := range l.flags {
			if flags&nodeKnown != 0 {
				visit(l.nodes[i].name, l.fits(int32(i), req))
			}
		}
		return
	}
	for i, flags := range l.flags {
		if flags&nodeKnown != 0 {
			visit(l.nodes[i].name, l.fitsFree(int32(i), p))
		}
	}
}

// CountFits returns on how many nodes the pod fits, as FitAll does.
func (l Reader) CountFits(p *Placement) int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	count := 0
	if p.Devices == nil {
		req := p.Request
		for i := range l.flags {
			if l.flags[i]&nodeKnown != 0 && l.fits(int32(i), req).Reason == Fits {
				count++
			}
		}
		return count
	}
	for i := range l.flags {
		if l.flags[i]&nodeKnown != 0 && l.fitsFree(int32(i), p).Reason == Fits {
			count++
		}
	}
	return count
}

// FitWithout checks whether the pod would fit the node once the victims were
// gone, or could redeem its reservation there. Victims that have no claim on the
// node free nothing.
func (l Reader) FitWithout(p *Placement, victims []types.UID) Verdict {
	l.mu.Lock() // the victims' claims are set aside for the length of the check
	defer l.mu.Unlock()
	i, ok := l.nodeIndex[p.Node]
	if !ok || l.flags[i]&nodeKnown == 0 {
		return Verdict{Reason: NodeUnknown}
	}
	own := l.lookup(p.Pod)
	if own != nil && own.node != i {
		return Verdict{Reason: ClaimedElsewhere}
	}
	if own != nil && slices.Contains(victims, own.pod.UID) { // nobody makes room for itself
		victims = slices.DeleteFunc(slices.Clone(victims), func(uid types.UID) bool { return uid == own.pod.UID })
	}
	absent := l.setAside(victims)
	defer l.putBack(absent)
	if own != nil {
		return l.fitsInPlace(own, p)
	}
	_, v := l.fitsAny(i, p, l.candidates(p))
	return v
}
