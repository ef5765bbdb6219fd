package ledger

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Trial is the account to try things on: pods are taken away, slots and pods are added, and any number of questions
// asked in between. When the function that was given it returns, everything is put back.
type Trial struct {
	*account

	undo []func() // the last change last
}

// Try lends the account to f. What f changes makes no events, and nothing of it
// stays. Everybody else waits as long as f runs, so it must be short. It must not call
// the ledger except by its Trial, nor keep that. What is due by now is not ended.
func (l Reader) Try(f func(t *Trial)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &Trial{account: l.account}
	defer t.revert()
	f(t)
}

func (t *Trial) revert() {
	for _, undo := range slices.Backward(t.undo) {
		undo()
	}
	t.undo = nil
}

// Remove takes pods away: their allocations, or what is kept for them in memory. What they
// used of a slot is the slot's again.
func (t *Trial) Remove(pods ...types.UID) {
	var others []types.UID // without allocations
	for _, uid := range pods {
		if c := t.byUID[uid]; c == nil {
			others = append(others, uid)
		} else if !c.away {
			t.take(c)
		}
	}
	if len(others) == 0 || t.memoryCount == 0 {
		return
	}
	for _, e := range t.named { // few pods are asked for, and their names are not known
		for ; e != nil && e.slot == nil; e = e.sameName {
			if e.inMemory() && e.pod.UID != "" && !e.away && slices.Contains(others, e.pod.UID) {
				t.take(e)
			}
		}
	}
}

// RemoveBinding takes away the pods that are being bound to a node and have a lower priority.
func (t *Trial) RemoveBinding(node string, below int32) {
	i, ok := t.nodeIndex[node]
	if !ok {
		return
	}
	t.takeBelow(i, below, func(e *entry) bool { return e.state == Binding })
}

// takeBelow takes away those of the entries of a node that have a lower priority.
func (t *Trial) takeBelow(i int32, priority int32, which func(*entry) bool) {
	for e := t.nodes[i].first; e != nil; {
		next := e.next
		if e.priority < priority && which(e) {
			t.take(e)
		}
		e = next
	}
}

// take takes something away.
func (t *Trial) take(e *entry) {
	t.detach(e)
	e.away = true
	t.undo = append(t.undo, func() {
		e.away = false
		t.attach(e)
	})
}

// Reserve tries a plan as Ledger.Reserve decides it, and leaves the slots it made, or
// changed, for the questions that follow. A pod is added by a slot in memory.
func (t *Trial) Reserve(plan Plan) Result {
	steps, result := t.tryPlan(nil, &plan)
	if len(steps) > 0 {
		t.undo = append(t.undo, func() { t.undoAll(steps) })
	}
	return result
}

// GiveWay takes away what gives way when a pod of a scheduler comes to exist; see ObserveUnbound.
func (t *Trial) GiveWay(pod PodRef, scheduler string) {
	for _, e := range t.named[pod.key()].keptFor(pod) {
		if e.givesWayTo(scheduler) {
			t.take(e)
		}
	}
}

// Grant returns what StartBind would give a pod that fits on a node, which keeps what it has there. It leaves the slot
// that it made for the questions that follow.
func (t *Trial) Grant(p *Placement) Grant {
	if own := t.allocationOf(p.Pod); own != nil {
		grant := own.grant()
		grant.Devices = own.given()
		return grant
	}
	s, rejection := t.tryBound(p)
	if rejection != nil {
		return Grant{}
	}
	t.undo = append(t.undo, func() { t.undoAll([]step{s}) })
	e := s.slot
	all := entry{devices: t.giveCounted(e.node, p.Request, e.devices, e.within)}
	return Grant{Slot: e.within.ref(), Caller: e.caller, Devices: all.given()}
}

// AppendFit is Reader.AppendFit on what is tried.
func (t *Trial) AppendFit(dst []Verdict, p *Placement, nodes []string) []Verdict {
	return t.appendFit(dst, p, nodes, t.find(p.Pod))
}

// FitAll is Reader.FitAll on what is tried.
func (t *Trial) FitAll(p *Placement, visit func(node string, v Verdict) (more bool)) {
	t.fitAll(p, visit)
}
