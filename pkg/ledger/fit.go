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
		return Verdict{Reason: InsufficientResource}
	}
	if len(req.Ports) > 0 && l.portTaken(i, req, nil) != nil {
		return Verdict{Reason: HostPortConflict}
	}
	return Verdict{Reason: Fits}
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
// placed there now. A pod that already has a claim fits the node of its claim
// and no other.
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
			dst = append(dst, Verdict{Reason: Fits})
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
	for _, a := range req.Amounts {
		free := at(l.row(i), a.Column)
		for c := range leaving {
			free, _ = resources.Add(free, c.request.Value(a.Column))
		}
		if a.Value > free {
			return Verdict{Reason: InsufficientResource, Column: a.Column}
		}
	}
	if len(req.Unlisted) > 0 {
		return Verdict{Reason: InsufficientResource}
	}
	if l.portTaken(i, req, func(c *claim) bool { return leaving[c] }) != nil {
		return Verdict{Reason: HostPortConflict}
	}
	return Verdict{Reason: Fits}
}
