package steering

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

const (
	// searchesPerSecond bounds what is spent on pods that samples refuse: each search looks at all nodes,
	// and is followed by a write and an attempt to schedule the pod.
	searchesPerSecond = 300
	// After each attempt that failed a pod waits twice as long, up to shortPause. manyTries are as many as
	// samples of 4% have all nodes in them; then it waits for longPause.
	shortPause = 4 * time.Second
	manyTries  = 25
	longPause  = time.Minute
	// crowdedPause is when a pod is looked at again that fits nowhere but where others were sent.
	crowdedPause = 2 * time.Second
	// maxCrowded is on how many nodes where others were sent capacity beside them is looked for.
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
// that the scheduler's copy of the pod is nominated for: another one than ours is for whose pods were
// evicted there, and is left alone.
func (s *Steering) SearchLater(pod *cluster.Pod, nominated string, offered int) {
	if offered < MinSample || pod.Ref.UID == "" || pod.Node != "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plans[pod.Ref.UID]
	if nominated != "" && (p == nil || p.last != nominated) {
		return
	}
	if p = s.free(pod); p == nil || p.wanted == searching || (p.isSent() && nominated == "") {
		return // where a nomination is still to be written, that will wake the pod
	}
	if nominated != "" && !slices.Contains(p.failed, nominated) {
		p.failed = append(p.failed, nominated)
	}
	p.tries++
	p.wanted, p.offered, p.owed = searching, offered, false
	s.leave(p)
	s.enqueue(pod.Ref.UID, p.pause())
}

// Nominated reports whether it is us who nominated a pod for a node with free capacity.
func (s *Steering) Nominated(pod types.UID, node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plans[pod]
	return p != nil && p.last == node
}

// NominateNow nominates a waiting pod, that was offered so many nodes at last, for a node with free capacity, which makes
// the scheduler try the pod again. It reports false where there is none to send the pod to, and so it is not woken.
func (s *Steering) NominateNow(pod *cluster.Pod, offered int) bool {
	if pod.Node != "" || !s.isSample(offered) {
		return false
	}
	s.mu.Lock()
	p := s.free(pod)
	if p == nil || p.isSent() {
		s.mu.Unlock()
		return p != nil // that is under way
	}
	s.mu.Unlock()
	s.searching.Lock()
	defer s.searching.Unlock()
	node, _ := s.find(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if node == "" || s.plans[pod.Ref.UID] != p || p.givenUp || !pod.Constraints.NodesDecide() {
		return false
	}
	s.meanFor(p, node)
	p.owed = true
	s.enqueue(pod.Ref.UID, 0)
	return true
}

// Toward nominates a pod for the node where a slot is kept for it, as it was refused another one: its scheduler may not
// know of the slot.
func (s *Steering) Toward(pod *cluster.Pod, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.free(pod)
	if p == nil || p.wanted == node || (p.wanted == "" && p.nominated == node) {
		return
	}
	s.meanFor(p, node)
	s.enqueue(pod.Ref.UID, settle)
}

// Moved nominates a pod for the node where a slot of its gang's is kept for it by now, if it was sent to another one as Toward does:
// there it would be refused.
func (s *Steering) Moved(pod *cluster.Pod, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.plans[pod.Ref.UID]; p != nil && p.isFree() && p.last != "" && p.last != node {
		p.pod = pod
		s.meanFor(p, node)
		s.enqueue(pod.Ref.UID, settle)
	}
}

// Remind nominates a pod for the node where a slot is kept for it, also where it was before, and has it tried again: its
// scheduler may have cleared the nomination when an attempt failed.
func (s *Steering) Remind(pod *cluster.Pod, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.free(pod); p != nil && p.wanted != node {
		s.meanFor(p, node)
		s.enqueue(pod.Ref.UID, 0)
	}
}

// isSample reports whether so many nodes are a part of those that a scheduler can offer. Where it
// offers fewer than it looks for, there are no more.
func (s *Steering) isSample(offered int) bool {
	return offered >= MinSample && offered < s.Ledger.Stats().Nodes
}

// free returns the plan of a pod for free capacity, nil where there are too many. s.mu is held.
func (s *Steering) free(pod *cluster.Pod) *plan {
	now := time.Now()
	p := s.plans[pod.Ref.UID]
	switch {
	case p == nil && !s.mayPlan(now):
		return nil
	case p == nil:
		p = &plan{}
		s.plans[pod.Ref.UID] = p
	case !p.isFree():
		s.leave(p)
		p.slot = ledger.UsableSlot{}
	}
	p.pod, p.asked = pod, now
	return p
}

// meanFor has a pod nominated for a node. s.mu is held.
func (s *Steering) meanFor(p *plan, node string) {
	s.leave(p)
	p.slot = ledger.UsableSlot{Node: node}
	p.again = p.last == node
	p.wanted, p.nominated, p.last, p.asked = node, "", node, time.Now()
	there := s.byNode[node]
	if there == nil {
		there = map[types.UID]*plan{}
		s.byNode[node] = there
	}
	there[p.pod.Ref.UID] = p
}

// resolve finds the node of a pod that a search was wanted for, and returns what to write: a node,
// clearing, or nothing.
func (s *Steering) resolve(pod *cluster.Pod) (wanted string) {
	s.searching.Lock()
	defer s.searching.Unlock()
	s.mu.Lock()
	p := s.plans[pod.Ref.UID]
	if p == nil {
		s.mu.Unlock()
		return ""
	}
	owed, offered := p.owed, p.offered
	s.mu.Unlock()
	node, crowded := "", false
	if owed || s.isSample(offered) {
		node, crowded = s.find(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plans[pod.Ref.UID] != p || p.wanted != searching {
		return ""
	}
	switch {
	case node != "" && (p.givenUp || !pod.Constraints.NodesDecide()):
		// The scheduler knows better which node it is. It looks at another sample each time.
		p.wanted = ""
		defer s.OnGivenUp(pod)
	case node != "":
		s.meanFor(p, node)
	case crowded:
		s.enqueue(pod.Ref.UID, crowdedPause)
		return ""
	case p.nominated != "":
		p.wanted = clearing
	default:
		s.drop(p) // capacity that is freed will wake it
		if p.owed {
			defer s.OnGivenUp(pod)
		}
		return ""
	}
	return p.wanted
}

// find looks for a node with free capacity for a pod. What others were sent to counts as theirs:
// crowded says that there would be a node otherwise. s.searching is held.
func (s *Steering) find(p *plan) (node string, crowded bool) {
	s.mu.Lock()
	pod, failed := p.pod, p.failed
	s.mu.Unlock()
	placement := s.Question.For(pod, "")
	if home, ok := s.Ledger.HomeOf(pod.Ref); ok {
		if s.fits(&placement, home) {
			return home, false
		}
		return "", false
	}
	accepts := pod.Constraints.Accepts()
	var taken, inVain []string
	s.Ledger.FitAll(&placement, func(name string, v ledger.Verdict) bool {
		if v.Reason != ledger.Fits {
			return true
		}
		switch known, ok := s.Node(name); {
		case !ok || !accepts(known):
		case slices.Contains(failed, name):
			inVain = append(inVain, name)
		case !s.isCrowded(name, pod.Ref.UID):
			node = name
		case len(taken) < maxCrowded:
			taken = append(taken, name)
		}
		return node == ""
	})
	if node == "" {
		node = s.beside(taken, &placement)
	}
	if node == "" && len(taken) == 0 && len(inVain) > 0 {
		s.mu.Lock()
		p.failed = nil // once more, from the beginning
		s.mu.Unlock()
		return inVain[0], false
	}
	return node, len(taken) > 0
}

// isCrowded reports whether other pods were sent to a node lately.
func (s *Steering) isCrowded(node string, pod types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sentTo(node, pod) != nil
}

// sentTo is what the pods ask for together that were sent to a node lately, but for one; nil where
// there are none. s.mu is held.
func (s *Steering) sentTo(node string, but types.UID) (sum *resources.Request) {
	now := time.Now()
	for uid, p := range s.byNode[node] {
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
func (s *Steering) beside(nodes []string, placement *ledger.Placement) string {
	if placement.Devices != nil {
		return "" // which of them the others will have is not known yet
	}
	for _, node := range nodes {
		s.mu.Lock()
		others := s.sentTo(node, placement.Pod.UID)
		s.mu.Unlock()
		together := *placement
		if others != nil {
			together.Request = placement.Request.Plus(others)
		}
		if s.fits(&together, node) {
			return node
		}
	}
	return ""
}

// fits reports whether a pod could be bound to a node.
func (s *Steering) fits(placement *ledger.Placement, node string) bool {
	verdicts := s.Ledger.AppendFit(nil, placement, []string{node})
	return verdicts[0].Reason == ledger.Fits
}
