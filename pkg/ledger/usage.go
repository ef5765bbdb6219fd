package ledger

import "github.com/globalreserve/globalreserve/pkg/resources"

// Usage is how much of one resource a node offers, and how much of it allocations
// use: milli-CPU for cpu, else the resource's own unit.
type Usage struct {
	Allocatable, Used int64
	// Elsewhere says that it is left to DRA: the node offers none by count, and what is used there is not known.
	Elsewhere bool
}

// Free returns what is left, negative where the node is overcommitted.
func (u Usage) Free() int64 { return resources.Sub(u.Allocatable, u.Used) }

// AppendUsage appends one Usage per node and column to dst: all columns of the first node, then those of the next. A
// node that does not exist offers nothing. It allocates nothing where dst has capacity.
func (l Reader) AppendUsage(dst []Usage, nodes []string, columns []resources.Column) []Usage {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, name := range nodes {
		i, ok := l.nodeIndex[name]
		known := ok && l.flags[i]&nodeKnown != 0
		for _, c := range columns {
			var u Usage
			if ok {
				u.Used = at(l.usedRow(i), c)
			}
			if known {
				u.Allocatable = at(l.nodes[i].allocatable, c)
				u.Elsewhere = l.leftToDRA(i, c)
			}
			dst = append(dst, u)
		}
	}
	return dst
}
