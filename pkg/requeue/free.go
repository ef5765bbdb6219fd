package requeue

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

const (
	// searchesPerSecond bounds what is spent on pods that samples refuse: each search looks at all nodes,
	// and is followed by a write and an attempt to schedule the pod.
	searchesPerSecond = 300
	// After each attempt that failed a pod waits twice as long, up to shortPause. In manyTries attempts, samples of 4%
	// have covered all nodes; then it waits for longPause.
	shortPause = 4 * time.Second
	manyTries  = 25
	longPause  = time.Minute
	// crowdedPause is when a pod is looked at again that fits nowhere but where others were sent.
	crowdedPause = 2 * time.Second
	// maxCrowded is how many nodes where others were sent are searched for capacity beside them.
	maxCrowded = 64
)

// search is what is known of a pod's way to free capacity.
type search struct {
	tries   int
	offered int      // how many nodes were offered at the last
	failed  []string // the nodes that it was nominated for in vain
	last    string   // the node nominated last
	owed    bool     // it is to be woken even where no node is found
}

// pause is how long to wait before the next try.
func (s *search) pause() time.Duration {
	if s.tries > manyTries {
		return longPause
	}
	return min(settle<<(s.tries-1), shortPause)
}

// isFree reports whether a plan is for free capacity.
func (p *plan) isFree() bool { return p.slot.Ref == ledger.SlotRef{} }

// isSent reports whether a node is to be nominated, which will wake the pod.
func (p *plan) isSent() bool { return p.wanted != "" && p.wanted != searching && p.wanted != clearing }

// SearchLater finds a node for a pod that was refused all nodes of a sample, after the attempt has ended.
// kube-scheduler looks at no others before it has another reason to try the pod. nominated is the node
// that the scheduler's copy of the pod is nominated for: on another one than ours pods were evicted for it, and that
// nomination is left alone.
func (w *Pods) SearchLater(pod *cluster.Pod, nominated string, offered int) {
	if offered < MinSample || pod.Ref.UID == "" || pod.Node != "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.plan(pod.Ref.UID)
	if nominated != "" && (p == nil || p.last != nominated) {
		return
	}
	if p = w.freePlan(pod); p.wanted == searching || (p.isSent() && nominated == "") {
		return // where a nomination is still to be written, that will wake the pod
	}
	if nominated != "" && !slices.Contains(p.failed, nominated) {
		p.failed = append(p.failed, nominated)
	}
	p.tries++
	p.wanted, p.offered, p.owed = searching, offered, false
	w.leave(p)
	w.writeLater(pod.Ref, p.pause())
}

// Nominated reports whether it is us who nominated a pod for a node with free capacity.
func (w *Pods) Nominated(pod types.UID, node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.plan(pod)
	return p != nil && p.last == node
}

// nominateNow nominates a waiting pod, that was offered so many nodes at last, for a node with free capacity, which
// makes the scheduler try the pod again. It reports false where there is none to send the pod to, and so it is not
// woken.
func (w *Pods) nominateNow(pod *cluster.Pod, offered int) bool {
	if pod.Node != "" || !w.isSample(offered) {
		return false
	}
	w.mu.Lock()
	p := w.freePlan(pod)
	if p.isSent() {
		w.mu.Unlock()
		return true // that is under way
	}
	w.mu.Unlock()
	w.searching.Lock()
	defer w.searching.Unlock()
	node, _ := w.find(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if node == "" || w.plan(pod.Ref.UID) != p || p.givenUp || !pod.Constraints.NodesDecide() {
		return false
	}
	w.meanFor(p, node)
	p.owed = true
	w.writeLater(pod.Ref, 0)
	return true
}

// Remind nominates a pod for the node where a slot is kept for it, also where it was before, and so makes its scheduler
// try it again: the scheduler may have cleared the nomination when an attempt failed.
func (w *Pods) Remind(pod *cluster.Pod, node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.freePlan(pod); p.wanted != node {
		w.meanFor(p, node)
		w.writeLater(pod.Ref, 0)
	}
}

// isSample reports whether so many nodes are a part of those that a scheduler can offer. Where it
// offers fewer than it looks for, there are no more.
func (w *Pods) isSample(offered int) bool {
	return offered >= MinSample && offered < w.Ledger.Stats().Nodes
}

// freePlan returns the plan of a pod for free capacity, made if there is none. mu is held.
func (w *Pods) freePlan(pod *cluster.Pod) *plan {
	r := w.record(pod.Ref)
	if r.plan == nil {
		w.setPlan(r, &plan{})
	} else if !r.plan.isFree() {
		w.leave(r.plan)
		r.plan.slot = ledger.UsableSlot{}
	}
	r.plan.pod, r.plan.asked = pod, time.Now()
	return r.plan
}

// meanFor makes a node the one that a pod is to be nominated for. mu is held.
func (w *Pods) meanFor(p *plan, node string) {
	w.leave(p)
	p.slot = ledger.UsableSlot{Node: node}
	p.again = p.last == node
	p.wanted, p.nominated, p.last, p.asked = node, "", node, time.Now()
	there := w.byNode[node]
	if there == nil {
		there = map[types.UID]*plan{}
		w.byNode[node] = there
	}
	there[p.pod.Ref.UID] = p
}

// resolve finds the node of a pod that a search was wanted for, and returns what to write: a node,
// clearing, or nothing. wake says that the pod is to be woken instead.
func (w *Pods) resolve(pod *cluster.Pod) (wanted string, wake bool) {
	w.searching.Lock()
	defer w.searching.Unlock()
	w.mu.Lock()
	p := w.plan(pod.Ref.UID)
	if p == nil {
		w.mu.Unlock()
		return "", false
	}
	owed, offered := p.owed, p.offered
	w.mu.Unlock()
	node, crowded := "", false
	if owed || w.isSample(offered) {
		node, crowded = w.find(p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.plan(pod.Ref.UID) != p || p.wanted != searching {
		return "", false
	}
	switch {
	case node != "" && (p.givenUp || !pod.Constraints.NodesDecide()):
		// The scheduler knows better which node it is. It looks at another sample each time.
		p.wanted, wake = "", true
	case node != "":
		w.meanFor(p, node)
	case crowded:
		w.writeLater(pod.Ref, crowdedPause)
		return "", false
	case p.nominated != "":
		p.wanted = clearing
	default:
		w.drop(p) // capacity that is freed will wake it
		return "", p.owed
	}
	return p.wanted, wake
}

// find looks for a node with free capacity for a pod. What others were sent to counts as theirs:
// crowded says that there would be a node otherwise. searching is held.
func (w *Pods) find(p *plan) (node string, crowded bool) {
	w.mu.Lock()
	pod, failed := p.pod, p.failed
	w.mu.Unlock()
	placement := w.Question.For(pod, "")
	if home, ok := w.Ledger.HomeOf(pod.Ref); ok {
		if w.fits(&placement, home) {
			return home, false
		}
		return "", false
	}
	accepts := pod.Constraints.Accepts()
	var taken, inVain []string
	w.Ledger.FitAll(&placement, func(name string, v ledger.Verdict) bool {
		if v.Reason != ledger.Fits {
			return true
		}
		switch known, ok := w.Nodes.Node(name); {
		case !ok || !accepts(known):
		case slices.Contains(failed, name):
			inVain = append(inVain, name)
		case !w.isCrowded(name, pod.Ref.UID):
			node = name
		case len(taken) < maxCrowded:
			taken = append(taken, name)
		}
		return node == ""
	})
	if node == "" {
		node = w.beside(taken, &placement)
	}
	if node == "" && len(taken) == 0 && len(inVain) > 0 {
		w.mu.Lock()
		p.failed = nil // once more, from the beginning
		w.mu.Unlock()
		return inVain[0], false
	}
	return node, len(taken) > 0
}

// isCrowded reports whether other pods were sent to a node lately.
func (w *Pods) isCrowded(node string, pod types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sentTo(node, pod) != nil
}

// sentTo is what the pods ask for together that were sent to a node lately, but for one; nil where
// there are none. mu is held.
func (w *Pods) sentTo(node string, but types.UID) (sum *resources.Request) {
	now := time.Now()
	for uid, p := range w.byNode[node] {
		switch {
		case uid == but || now.Sub(p.asked) >= planLife:
		case sum == nil:
			sum = p.pod.Request
		default:
			sum = sum.Plus(p.pod.Request)
		}
	}
	return sum
}

// beside returns the first of the nodes that has capacity for a pod beside those that were sent there.
func (w *Pods) beside(nodes []string, placement *ledger.Placement) string {
	if placement.Devices != nil {
		return "" // which of them the others will have is not known yet
	}
	for _, node := range nodes {
		w.mu.Lock()
		others := w.sentTo(node, placement.Pod.UID)
		w.mu.Unlock()
		together := *placement
		if others != nil {
			together.Request = placement.Request.Plus(others)
		}
		if w.fits(&together, node) {
			return node
		}
	}
	return ""
}

// fits reports whether a pod could be bound to a node.
func (w *Pods) fits(placement *ledger.Placement, node string) bool {
	verdicts := w.Ledger.AppendFit(nil, placement, []string{node})
	return verdicts[0].Reason == ledger.Fits
}
