package ledger

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

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

// maxNominated is for how many pods something is kept on one node: each is looked at for every pod that asks for it.
const maxNominated = 32

// nominations are those of all nodes, by pod. soonest is when the first of them ends.
type nominations struct {
	byPod   map[types.UID]*nomination
	soonest int64
}

func (all *nominations) remove(n *nomination) {
	delete(all.byPod, n.pod.UID)
	if n.until > all.soonest {
		return
	}
	all.soonest = never
	for _, n := range all.byPod {
		all.soonest = min(all.soonest, n.until)
	}
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
	if !ok || p.Pod.UID == "" || l.gone.has(p.Pod.UID) || len(l.nodes[i].nominated) == maxNominated || !l.makesWay(i, p) {
		return false
	}
	n := &nomination{pod: p.Pod, node: i, request: p.Request, priority: p.Priority, until: nanos(until)}
	if len(l.nominations.byPod) == 0 {
		l.nominations = nominations{map[types.UID]*nomination{}, never}
	}
	l.nominations.byPod[p.Pod.UID], l.nominations.soonest = n, min(l.nominations.soonest, n.until)
	l.nodes[i].nominated = append(l.nodes[i].nominated, n)
	l.flags[i] |= hasNominated
	l.wake() // for the subscriber that ends it
	return true
}

// MakesWay reports whether a pod has nothing yet, does not fit p.Node, and would without the pods of a lower priority
// there.
func (l Reader) MakesWay(p *Placement) bool {
	l.mu.Lock() // something is taken off the account for the length of the question
	defer l.mu.Unlock()
	i, ok := l.nodeIndex[p.Node]
	return ok && l.makesWay(i, p)
}

func (l *account) makesWay(i int32, p *Placement) bool {
	candidates := l.candidates(p)
	m := l.limiterOf(p, p.Caller)
	if _, v := l.fitAny(i, p, candidates, &m); l.find(p.Pod) != nil || !v.Reason.OfCapacity() {
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
	n := l.nominations.byPod[pod.UID]
	if n == nil {
		return
	}
	l.nominations.remove(n)
	at := l.nodes[n.node]
	if at.nominated = slices.DeleteFunc(at.nominated, func(o *nomination) bool { return o == n }); len(at.nominated) == 0 {
		l.flags[n.node] &^= hasNominated
	}
	if !l.isServed(n, nil) {
		details := *at.details
		details.Lapsed = true
		l.recordNode(NodeUpdated, l.names[n.node], &details)
	}
}

// dropNominations forgets those for a node that is gone.
func (l *account) dropNominations(i int32) {
	for _, n := range l.nodes[i].nominated {
		l.nominations.remove(n)
	}
	l.nodes[i].nominated = nil
}

// lapseNominations forgets those whose time is over.
func (l *account) lapseNominations(at int64) {
	if len(l.nominations.byPod) == 0 || l.nominations.soonest > at {
		return
	}
	var over []*nomination
	for _, n := range l.nominations.byPod {
		if n.until <= at {
			over = append(over, n)
		}
	}
	slices.SortFunc(over, func(a, b *nomination) int {
		return cmp.Or(cmp.Compare(a.until, b.until), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	for _, n := range slices.Backward(over) { // the last first: one pass over those that are left at the end, and no more
		l.endNomination(n.pod)
	}
}

// isServed reports whether a pod has capacity on the node that it is nominated for, which counts for everybody. What is
// off the account now does not count.
func (l *account) isServed(n *nomination, off *entry) bool {
	own := l.find(n.pod)
	return own != nil && own != off && own.node == n.node
}

// rowFor returns what is free on a node for a pod: what is free and kept there for pods of a higher priority is left
// out. place is what the pod has there already, and is off the account now, or nil: so much was not free before.
func (l *account) rowFor(i int32, p *Placement, place *entry) []int64 {
	row := l.row(i)
	if l.flags[i]&hasNominated == 0 {
		return row
	}
	kept := make([]int64, len(row))
	for _, n := range l.nodes[i].nominated {
		same := n.pod.key() == p.Pod.key() && (p.Pod.UID == "" || n.pod.UID == p.Pod.UID)
		if n.priority <= p.Priority || same || l.isServed(n, place) {
			continue
		}
		for _, a := range n.request.Amounts {
			if int(a.Column) < len(kept) {
				kept[a.Column], _ = resources.Add(kept[a.Column], a.Value)
			}
		}
	}
	before, exchanged := l.before[i]
	for c := range kept {
		was := row[c]
		if exchanged {
			was = at(before, resources.Column(c))
		} else if place != nil {
			was = resources.Sub(was, place.request.Value(resources.Column(c)))
		}
		kept[c] = resources.Sub(row[c], min(kept[c], max(was, 0)))
	}
	return kept
}

// remember makes what is given up and made from now on, until forgetBefore, count as if it had never been free: it is
// for the pods that gave it up.
func (l *account) remember() {
	if len(l.nominations.byPod) == 0 {
		return
	}
	l.before = map[int32][]int64{}
	for _, n := range l.nominations.byPod {
		if l.before[n.node] == nil {
			l.before[n.node] = slices.Clone(l.row(n.node))
		}
	}
}

func (l *account) forgetBefore() { l.before = nil }
