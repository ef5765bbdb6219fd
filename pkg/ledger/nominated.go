package ledger

import (
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// nomination is a pod that is nominated for a node on which pods of a lower priority are evicted for it.
type nomination struct {
	pod      PodRef
	node     int32
	request  *resources.Request
	priority int32
	until    int64 // in Unix nanoseconds
}

// Nominate records that a pod is nominated for p.Node, and for no node where that is empty. If it does not fit there,
// and would without the pods of lower priority, these make way for it: what they leave is kept from pods of a lower
// priority than its own until it is bound, gone or nominated anew, or a moment has passed. It reports whether that is
// so. kube-scheduler does the same for the pods in its own queue (kubernetes pkg/scheduler/framework/runtime,
// RunFilterPluginsWithNominatedPods).
func (l Observer) Nominate(p *Placement, until time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endNomination(p.Pod)
	i, ok := l.nodeIndex[p.Node]
	if !ok || p.Pod.UID == "" || l.gone.has(p.Pod.UID) || l.find(p.Pod) != nil || !l.othersMakeWay(i, p) {
		return false
	}
	n := &nomination{pod: p.Pod, node: i, request: p.Request, priority: p.Priority, until: nanos(until)}
	l.nominations = append(l.nominations, n)
	l.nodes[i].nominated = append(l.nodes[i].nominated, n)
	l.flags[i] |= hasNominated
	return true
}

// MakesWay reports whether a pod does not fit p.Node, and would without the pods of a lower priority there.
func (l Reader) MakesWay(p *Placement) bool {
	l.mu.Lock() // something is taken off the account for the length of the question
	defer l.mu.Unlock()
	i, ok := l.nodeIndex[p.Node]
	return ok && l.find(p.Pod) == nil && l.othersMakeWay(i, p)
}

// othersMakeWay reports whether a pod fits a node without the pods of a lower priority, and not with them.
func (l *account) othersMakeWay(i int32, p *Placement) bool {
	candidates := l.candidates(p)
	m := l.limiterOf(p, p.Caller)
	if _, v := l.fitAny(i, p, candidates, &m); !v.shortOfCapacity() {
		return false
	}
	t := Trial{account: l}
	defer t.revert()
	t.takeBelow(i, p.Priority, (*entry).isAllocation)
	m = l.limiterOf(p, p.Caller)
	_, v := l.fitAny(i, p, candidates, &m)
	return v.Reason == Fits
}

// endNomination forgets that a pod is nominated. What was kept for it is free, unless it has that now.
func (l *account) endNomination(pod PodRef) {
	k := slices.IndexFunc(l.nominations, func(n *nomination) bool { return n.pod.UID == pod.UID })
	if k < 0 || pod.UID == "" {
		return
	}
	n := l.nominations[k]
	l.nominations = slices.Delete(l.nominations, k, k+1)
	at := l.nodes[n.node]
	if at.nominated = slices.DeleteFunc(at.nominated, func(o *nomination) bool { return o == n }); len(at.nominated) == 0 {
		l.flags[n.node] &^= hasNominated
	}
	if own := l.find(pod); own == nil || own.node != n.node {
		details := *at.details
		details.Lapsed = true
		l.recordNode(NodeUpdated, l.names[n.node], &details)
	}
}

// dropNominations forgets those for a node that is gone.
func (l *account) dropNominations(i int32) {
	l.nominations = slices.DeleteFunc(l.nominations, func(n *nomination) bool { return n.node == i })
	l.nodes[i].nominated = nil
}

// lapseNominations forgets those whose time is over.
func (l *account) lapseNominations(at int64) {
	for k := 0; k < len(l.nominations); {
		if n := l.nominations[k]; n.until <= at {
			l.endNomination(n.pod)
		} else {
			k++
		}
	}
}

// isServed reports whether a pod that is nominated has capacity, which counts for everybody.
func (l *account) isServed(n *nomination) bool { return l.find(n.pod) != nil }

// rowFor returns what is free on a node for a pod: what is kept there for pods of a higher priority is left out.
func (l *account) rowFor(i int32, p *Placement) []int64 {
	row := l.row(i)
	if l.flags[i]&hasNominated == 0 {
		return row
	}
	row = slices.Clone(row)
	for _, n := range l.nodes[i].nominated {
		if n.priority <= p.Priority || n.pod.UID == p.Pod.UID || l.isServed(n) {
			continue
		}
		for _, a := range n.request.Amounts {
			if int(a.Column) < len(row) {
				row[a.Column] = resources.Sub(row[a.Column], a.Value)
			}
		}
	}
	return row
}
