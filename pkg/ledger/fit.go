package ledger

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// fits checks a request against a node's free room. It allocates nothing, and
// its cost does not depend on how many pods are on the node.
func (l *Ledger) fits(i int32, req *resources.Request) Verdict {
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

// fitsWithout checks a request against the room of a node that exists as if the
// claims for which absent is true were not there. freed tells what those use.
func (l *Ledger) fitsWithout(i int32, req *resources.Request, freed func(resources.Column) int64, absent func(*claim) bool) Verdict {
	for k := range req.Amounts {
		a := &req.Amounts[k]
		free := resources.Sub(at(l.row(i), a.Column), -freed(a.Column))
		if l.nodes[i].saturated {
			free = l.recountFree(i, a.Column, absent)
		}
		if a.Value > free {
			return Verdict{Reason: InsufficientResource, Column: a.Column}
		}
	}
	if len(req.Unlisted) > 0 {
		return Verdict{Reason: InsufficientResource, Unlisted: true}
	}
	if len(req.Ports) > 0 && l.portTaken(i, req, absent) != nil {
		return Verdict{Reason: HostPortConflict}
	}
	return Verdict{Reason: Fits}
}

// recountFree sums what is free of a resource without some claims, for the rare
// node on which a sum has no int64 and nothing can be subtracted from it.
func (l *Ledger) recountFree(i int32, col resources.Column, absent func(*claim) bool) int64 {
	n := l.nodes[i]
	var used int64
	for c := n.claims; c != nil; c = c.next {
		if !absent(c) {
			used, _ = resources.Add(used, c.request.Value(col))
		}
	}
	return resources.Sub(at(n.allocatable, col), used)
}

// fitsInPlace checks whether a claim can be used by its pod for a request now.
// That fails where the node has vanished or lost room since the claim was made:
// the kubelet would reject the pod. A node cordoned since does not matter.
func (l *Ledger) fitsInPlace(c *claim, req *resources.Request) Verdict {
	if c.state != Reserved {
		return Verdict{Reason: Fits}
	}
	if l.flags[c.node]&nodeKnown == 0 {
		return Verdict{Reason: NodeUnknown}
	}
	return l.fitsWithout(c.node, req, c.request.Value, func(o *claim) bool { return o == c })
}

// portTaken returns the first host port of the request that a claim on the node
// collides with, or nil. Claims for which skip is true do not count.
func (l *Ledger) portTaken(i int32, req *resources.Request, skip func(*claim) bool) *resources.HostPort {
	n := l.nodes[i]
	for k := range req.Ports {
		p := &req.Ports[k]
		for _, u := range n.ports[p.PortKey] {
			if skip != nil && skip(u.claim) {
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
// placed there now. A pod that already has a claim fits no other node than the
// claim's, and that one as long as the claim could be redeemed.
func (l *Ledger) AppendFit(dst []Verdict, pod PodRef, req *resources.Request, nodes []string) []Verdict {
	l.mu.RLock()
	defer l.mu.RUnlock()
	own := l.lookup(pod)
	gone := own == nil && l.gone.has(pod.UID)
	for _, name := range nodes {
		i, known := l.nodeIndex[name]
		switch {
		case gone:
			dst = append(dst, Verdict{Reason: PodGone})
		case !known:
			dst = append(dst, Verdict{Reason: NodeUnknown})
		case own == nil:
			dst = append(dst, l.fits(i, req))
		case own.node == i:
			dst = append(dst, l.fitsInPlace(own, req))
		default:
			dst = append(dst, Verdict{Reason: ClaimedElsewhere})
		}
	}
	return dst
}

// FitAll calls visit for every node that exists, in no particular order, with
// whether the request fits there. It does not look at a claim the pod may have.
// visit must not call the ledger.
func (l *Ledger) FitAll(req *resources.Request, visit func(node string, v Verdict)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i, flags := range l.flags {
		if flags&nodeKnown != 0 {
			visit(l.nodes[i].name, l.fits(int32(i), req))
		}
	}
}

// CountFits returns on how many nodes the request fits.
func (l *Ledger) CountFits(req *resources.Request) int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	count := 0
	for i := range l.flags {
		if l.flags[i]&nodeKnown != 0 && l.fits(int32(i), req).Reason == Fits {
			count++
		}
	}
	return count
}

// FitWithout checks whether the pod would fit the node once the victims were
// gone. Victims that have no claim on the node free nothing.
func (l *Ledger) FitWithout(pod PodRef, req *resources.Request, nodeName string, victims []types.UID) Verdict {
	l.mu.RLock()
	defer l.mu.RUnlock()
	i, ok := l.nodeIndex[nodeName]
	if !ok || l.flags[i]&nodeKnown == 0 {
		return Verdict{Reason: NodeUnknown}
	}
	if own := l.lookup(pod); own != nil && own.node != i {
		return Verdict{Reason: ClaimedElsewhere}
	} else if own != nil {
		return Verdict{Reason: Fits}
	}
	leaving := make(map[*claim]bool, len(victims))
	for _, uid := range victims {
		if c := l.byUID[uid]; c != nil && c.node == i {
			leaving[c] = true
		}
	}
	if l.flags[i]&nodeCordoned != 0 && !req.ToleratesUnschedulable {
		return Verdict{Reason: NodeUnschedulable}
	}
	freed := func(col resources.Column) (sum int64) {
		for c := range leaving {
			sum, _ = resources.Add(sum, c.request.Value(col))
		}
		return sum
	}
	return l.fitsWithout(i, req, freed, func(c *claim) bool { return leaving[c] })
}
