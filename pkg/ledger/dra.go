package ledger

import (
	"math"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Where a node offers none of a resource by count, and DRA gives devices for it there, kube-scheduler leaves the
// resource to DRA, and allocates devices to the pods that ask for it (NodeResourcesFit). So the ledger does not count
// it there, and the webhook decides on the devices instead. What follows says where that is so. Nothing is kept of such
// a resource: nobody has the devices of a pod to come. Nor is a pod bound before its status says what DRA gave it.

// offered is how much there is of a resource on a node. What pods have by DRA fits, also where its devices are not
// published just now.
func (n *node) offered(c resources.Column) int64 {
	offered := at(n.allocatable, c)
	switch {
	case offered > 0:
		return offered
	case slices.Contains(n.left, c):
		return math.MaxInt64
	case slices.Contains(n.drawn, c):
		return n.usedByDRA(c)
	}
	return 0
}

// usedByDRA is how much pods use of a resource that DRA gave them.
func (n *node) usedByDRA(c resources.Column) (sum int64) {
	for e := n.first; e != nil; e = e.next {
		if slices.Contains(e.request.ByDRA, c) {
			sum, _ = resources.Add(sum, e.counts.Value(c))
		}
	}
	return sum
}

// usedByCount reports whether a pod that was seen on the node has some of a resource that DRA has not given it: its
// device plugin is away. A pod that is being bound may be one whose status does not say yet what DRA gave it.
func (n *node) usedByCount(c resources.Column) bool {
	for e := n.first; e != nil; e = e.next {
		if e.isAllocation() && e.version > 0 && e.request.Value(c) > 0 && !slices.Contains(e.request.ByDRA, c) {
			return true
		}
	}
	return false
}

// leave decides what of a node is left to DRA.
func (n *node) leave() {
	n.left = nil // not truncated: a Survey may have it
	for _, c := range n.dra {
		if at(n.allocatable, c) == 0 && !n.usedByCount(c) {
			n.left = append(n.left, c)
		}
	}
}

// refreshDRA recomputes what is free of what DRA may give on a node.
func (l *account) refreshDRA(i int32) {
	n, free, used := l.nodes[i], l.row(i), l.usedRow(i)
	n.leave()
	for _, list := range [...][]resources.Column{n.dra, n.drawn} {
		for _, c := range list {
			if int(c) < len(free) {
				free[c] = resources.Sub(n.offered(c), used[c])
			}
		}
	}
	if l.flags[i]&hasDevices != 0 {
		l.refreshCounted(i)
	}
}

// leftToDRA reports whether a node leaves a resource to DRA.
func (l *account) leftToDRA(i int32, c resources.Column) bool {
	return slices.Contains(l.nodes[i].left, c)
}

// somewhereLeftToDRA reports whether any node leaves a resource to DRA.
func (l *account) somewhereLeftToDRA(c resources.Column) bool {
	return slices.ContainsFunc(l.nodes, func(n *node) bool { return n != nil && slices.Contains(n.left, c) })
}

// draw records what an entry that comes to a node (1), or goes (-1), has by DRA.
func (l *account) draw(e *entry, sign int) {
	if len(e.request.ByDRA) == 0 {
		return
	}
	n := l.nodes[e.node]
	for _, c := range e.request.ByDRA {
		if sign > 0 {
			n.drawn = append(n.drawn, c)
		} else if k := slices.Index(n.drawn, c); k >= 0 {
			n.drawn = slices.Delete(n.drawn, k, k+1)
		}
	}
	l.markDRA(e.node)
}

// markDRA marks a node where DRA gives something, or has; most have no such mark.
func (l *account) markDRA(i int32) {
	l.flags[i] &^= usesDRA
	if n := l.nodes[i]; len(n.dra)+len(n.drawn) > 0 {
		l.flags[i] |= usesDRA
	}
}

// byDRAOnly says in words which resource of those that an exchange is to keep is left to DRA by some node; empty where
// there is none.
func (l *account) byDRAOnly(x *Exchange) string {
	for k := range x.Keep {
		for _, slot := range x.Keep[k].Slots[:min(1, len(x.Keep[k].Slots))] {
			for _, a := range slot.Request.Amounts {
				if a.Column > resources.Pods && l.somewhereLeftToDRA(a.Column) {
					return "what nodes leave to DRA, " + string(l.table.Name(a.Column)) + ", is kept for no pod"
				}
			}
		}
	}
	return ""
}

// notGiven returns a resource that the node leaves to DRA, and that DRA has not given yet.
func (l *account) notGiven(i int32, req *resources.Request) (resources.Column, bool) {
	for _, a := range req.Amounts {
		if l.leftToDRA(i, a.Column) && !slices.Contains(req.ByDRA, a.Column) {
			return a.Column, true
		}
	}
	return 0, false
}

// LeavesToDRA reports whether a node leaves something to DRA that is asked for.
func (l Reader) LeavesToDRA(node string, req *resources.Request) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	i, ok := l.nodeIndex[node]
	return ok && slices.ContainsFunc(req.Relisted(l.table).Amounts, func(a resources.Amount) bool {
		return l.leftToDRA(i, a.Column)
	})
}

// BesidesDRA returns what is asked for besides what DRA has given on a node, or gives there.
func (l Reader) BesidesDRA(node string, req *resources.Request) *resources.Request {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if i, ok := l.nodeIndex[node]; ok {
		return l.besidesDRA(i, req)
	}
	return req
}

func (l *account) besidesDRA(i int32, req *resources.Request) *resources.Request {
	n := l.nodes[i]
	return req.Without(func(c resources.Column) bool {
		return at(n.allocatable, c) == 0 && (slices.Contains(n.left, c) || slices.Contains(req.ByDRA, c))
	})
}
