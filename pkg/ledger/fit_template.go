package ledger

import (
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Template is a node as a caller describes it.
type Template struct {
	Name string
	// Offered is what it has, see resources.Offered; empty says nothing.
	Offered       map[v1.ResourceName]int64
	Unschedulable bool
}

// FitTemplate returns whether a pod would fit a node that does not exist here, if it were as the caller says. What pods
// use that are bound to a node of the name counts. It is advice: nothing is ever granted on a node that does not exist.
// No claims of devices are met there, because its devices are not known.
func (l Reader) FitTemplate(p *Placement, node *Template) Verdict {
	l.mu.RLock()
	defer l.mu.RUnlock()
	i, named := l.nodeIndex[node.Name]
	over := l.limiterOf(p, p.Caller).whole
	switch own := l.find(p.Pod); {
	case named && l.flags[i]&nodeKnown != 0, len(node.Offered) == 0, p.Devices != nil, l.gone.has(p.Pod.UID):
		return Verdict{Reason: NodeUnknown}
	case own != nil:
		return Verdict{Reason: AllocatedElsewhere}
	case over.Reason != Fits:
		return over
	case node.Unschedulable && !p.Request.ToleratesUnschedulable:
		return Verdict{Reason: NodeUnschedulable}
	}
	for _, a := range p.Request.Amounts {
		free := node.Offered[l.table.Name(a.Column)]
		if free == 0 && !p.NoDRA && l.somewhereLeftToDRA(a.Column) {
			continue // DRA may give it on such a node, too
		}
		if named && int(a.Column) < l.stride {
			free = resources.Sub(free, l.usedRow(i)[a.Column])
		}
		if a.Value > free {
			return Verdict{Reason: InsufficientResource, Column: a.Column}
		}
	}
	for _, a := range p.Request.Unlisted {
		if a.Value > node.Offered[a.Name] {
			return Verdict{Reason: InsufficientResource, Unlisted: true}
		}
	}
	return Verdict{Reason: Fits}
}
