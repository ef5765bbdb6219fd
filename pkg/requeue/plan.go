package requeue

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

const (
	// MinSample is how many feasible nodes kube-scheduler looks for at least
	// (minFeasibleNodesToFind): where it offers fewer, there are no more.
	MinSample = 100
	// maxEffort is what is spent on a pod before it has its choice again: 1 for
	// an attempt narrowed down to one node, elsewhereEffort for one refused.
	maxEffort       = 4
	elsewhereEffort = 2
	// patience is for how long attempts that do not know of the pod's nomination cost no effort: some began before it was
	// written, and kube-scheduler clears what is nominated when an attempt fails. Other schedulers never look at it.
	patience = 5 * time.Second
	// planLife is for how long a plan keeps other pods away from its slot after
	// it was last asked for. kube-scheduler's own back-off is at most 10 s.
	planLife = 15 * time.Second
	// settle is how long after an attempt was refused the pod is nominated.
	settle = 100 * time.Millisecond
	// sweepDelay collects changes of the ledger before nominations are looked at.
	sweepDelay = 100 * time.Millisecond
)

// plan is the node a pod is meant for: that of a slot, or one with free capacity.
type plan struct {
	pod *cluster.Pod
	// slot is what the pod is to use there. Of free capacity it has the node and no name.
	slot   ledger.UsableSlot
	effort int       // see maxEffort
	since  time.Time // of the first attempt that cost some
	asked  time.Time
	search // of free capacity
	// wanted is the node to nominate, nominated the one that has been; "" means none.
	wanted, nominated string
	// again: the node had been nominated before. The pod may have it still, and to
	// write what is there already wakes nobody.
	again   bool
	givenUp bool // nominating has failed for good
}

// nominate makes the plan want a nomination for its node.
func (p *plan) nominate() {
	p.again = p.nominated == p.slot.Node
	p.wanted, p.nominated = p.slot.Node, ""
}

// spend counts an attempt.
func (p *plan) spend(effort int) {
	if p.effort == 0 {
		p.since = p.asked
	}
	p.effort += effort
}

// Plan chooses one of the slots a pod could be bound with for it, and returns the slot's node. Slots on an offered node
// are preferred. ok is false where all are meant for other pods, or none is on a node that is offered or may merely not
// have been looked at.
func (w *Pods) Plan(pod *cluster.Pod, usable []ledger.UsableSlot, offered []string) (node string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, _ := w.planFor(pod, usable, offered)
	if p == nil {
		return "", false
	}
	return p.slot.Node, true
}

// Direct plans a pod for an attempt to schedule it on one of the offered nodes. It returns the node that alone should
// be kept; elsewhere says that this node was not offered, and that the pod comes back with it if all others are refused
// now. Both are zero where the pod should have its choice. nominated is the node that the scheduler's copy of the pod
// has.
func (w *Pods) Direct(pod *cluster.Pod, nominated string, usable []ledger.UsableSlot,
	offered []string,
) (node string, elsewhere bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, isOffered := w.planFor(pod, usable, offered)
	switch {
	case p == nil:
		return "", false
	case !isOffered && p.wanted == p.slot.Node:
		return "", true // something else woke the pod before its nomination did
	case p.effort >= maxEffort || (p.givenUp && !isOffered):
		return "", false
	case isOffered:
		p.spend(1)
		return p.slot.Node, false
	case p.effort == 0 || nominated == p.slot.Node || p.asked.Sub(p.since) >= patience:
		p.spend(elsewhereEffort)
	}
	p.nominate()
	w.writeLater(pod.Ref, settle)
	return "", true
}

// planNow plans a waiting pod for one of its slots and nominates that node, which makes the scheduler try the pod
// again. It reports false where the pod could not be planned, and so is not woken.
func (w *Pods) planNow(pod *cluster.Pod) bool {
	placement := w.Question.For(pod, "")
	usable := w.Ledger.UsableSlots(&placement)
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.choose(pod, usable, func(string) bool { return true })
	if p == nil || p.givenUp {
		return false
	}
	p.effort = 0
	p.nominate()
	w.writeLater(pod.Ref, 0)
	return true
}

// planFor finds a slot for a pod, on an offered node if there is one. mu is held.
func (w *Pods) planFor(pod *cluster.Pod, usable []ledger.UsableSlot, offered []string) (p *plan, isOffered bool) {
	if p := w.choose(pod, usable, sets.New(offered...).Has); p != nil {
		return p, true
	}
	if len(offered) < MinSample {
		return nil, false
	}
	return w.choose(pod, usable, func(string) bool { return true }), false
}

// MeantFor returns the node of the slot that a pod is planned for, "" where there is none.
func (w *Pods) MeantFor(pod types.UID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.plan(pod); p != nil && p.slot.Ref != (ledger.SlotRef{}) {
		return p.slot.Node
	}
	return ""
}

// choose keeps the pod's plan if its slot is usable and on a node that will do,
// or finds another slot that is meant for nobody else. mu is held.
func (w *Pods) choose(pod *cluster.Pod, usable []ledger.UsableSlot, willDo func(node string) bool) *plan {
	now := time.Now()
	p := w.plan(pod.Ref.UID)
	best := -1
	for k, h := range usable {
		switch {
		case !willDo(h.Node) || (!h.Shared && w.isTaken(h.Ref, pod.Ref.UID, now)):
		case p != nil && p.slot.Ref == h.Ref:
			p.pod, p.slot, p.asked = pod, h, now
			w.record(pod.Ref)
			return p
		case best < 0:
			best = k
		}
	}
	if best < 0 {
		return nil
	}
	next := &plan{pod: pod, slot: usable[best], asked: now}
	if p != nil {
		next.nominated, next.givenUp, next.effort, next.since = p.nominated, p.givenUp, p.effort, p.since
		if p.wanted != "" {
			next.wanted = next.slot.Node
			w.writeLater(pod.Ref, settle) // what clears the other nomination may be on its way
		}
		w.leave(p)
	}
	w.setPlan(w.record(pod.Ref), next)
	if !next.slot.Shared {
		w.bySlot[next.slot.Ref] = next
	}
	return next
}

// plan returns the plan of a pod, nil where there is none. mu is held.
func (w *Pods) plan(pod types.UID) *plan {
	if r := w.byUID[pod]; r != nil {
		return r.plan
	}
	return nil
}

// isTaken reports whether a slot is meant for another pod. mu is held.
func (w *Pods) isTaken(slot ledger.SlotRef, pod types.UID, now time.Time) bool {
	other, ok := w.bySlot[slot]
	return ok && other.pod.Ref.UID != pod && now.Sub(other.asked) < planLife
}

// drop forgets a plan. mu is held.
func (w *Pods) drop(p *plan) {
	w.leave(p)
	if r := w.byUID[p.pod.Ref.UID]; r != nil && r.plan == p {
		w.setPlan(r, nil)
		w.tidy(r)
	}
}

// setPlan replaces the plan of a pod; nil is none. mu is held.
func (w *Pods) setPlan(r *record, p *plan) {
	delete(w.plans, r.plan)
	if r.plan = p; p != nil {
		w.plans[p] = true
	}
}

// leave gives up what a plan keeps other pods away from. The slot may be another pod's by now. mu is held.
func (w *Pods) leave(p *plan) {
	uid := p.pod.Ref.UID
	if w.bySlot[p.slot.Ref] == p {
		delete(w.bySlot, p.slot.Ref)
	}
	if there := w.byNode[p.slot.Node]; there[uid] == p {
		if delete(there, uid); len(there) == 0 {
			delete(w.byNode, p.slot.Node)
		}
	}
}

// byAge puts the plan asked for longest ago first.
func byAge(a, b *plan) int {
	return cmp.Or(a.asked.Compare(b.asked), cmp.Compare(a.pod.Ref.UID, b.pod.Ref.UID))
}
