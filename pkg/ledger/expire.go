package ledger

import (
	"slices"
	"time"
)

// expireBatch is how many slots expire at most while everybody else waits. It does not
// bound what one decision needs to have expired.
const expireBatch = 256

// Expire ends the slots whose deadline is not after now and returns how many there were. A slot waits for a bind in
// flight that uses it. Others get a turn in between where there are many.
func (l Observer) Expire(now time.Time) int {
	count, more := l.expireSome(now)
	for more {
		var n int
		n, more = l.expireSome(now)
		count += n
	}
	return count
}

func (l *account) expireSome(now time.Time) (count int, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expire(now)
}

// expire ends a batch of what is due, soonest first, and reports whether there is more.
func (l *account) expire(now time.Time) (count int, more bool) {
	at := nanos(now)
	l.lapseNominations(at)
	for seen := 0; ; seen++ {
		if len(l.deadlines) == 0 || l.deadlines[0].deadline > at {
			return count, false
		}
		if seen == expireBatch {
			return count, true
		}
		count += l.lapse(l.deadlines[0])
	}
}

// lapse ends a slot that is due and returns how many ended: 0 where it has to wait for a bind.
func (l *account) lapse(e *entry) int {
	if e.binding() {
		e.overdue = true
		l.unschedule(e)
		l.record(SlotPlaced, e, e.pod)
		return 0
	}
	if e.inMemory() {
		l.memoryExpired++
	}
	l.endSlot(e, SlotExpired, PodRef{})
	return 1
}

// expireFor lets expire what is due before a bind is decided.
func (l *account) expireFor(p *Placement, now time.Time) {
	if _, more := l.expire(now); more {
		l.expireAround(p.Pod, p.Node, SlotRef{}, now)
	}
}

// expireAround lets expire what is due of all that bears on a decision about a pod, a node and a slot. Decisions call
// it where a batch was not all: they must not have to pay for everything that is due in the cluster.
func (l *account) expireAround(pod PodRef, nodeName string, ref SlotRef, now time.Time) {
	var due []*entry
	add := func(e *entry) {
		if e.due >= 0 && e.deadline <= nanos(now) && !slices.Contains(due, e) {
			due = append(due, e)
		}
	}
	if i, ok := l.nodeIndex[nodeName]; ok {
		for e := l.nodes[i].first; e != nil; e = e.next {
			add(e)
		}
	}
	for e := l.named[pod.key()]; e != nil; e = e.sameName {
		add(e)
	}
	if e := l.slots[ref]; e != nil {
		add(e)
	}
	for _, e := range due {
		if e.due >= 0 {
			l.lapse(e)
		}
	}
}

// NextDeadline returns when the next slot expires, and false where none does.
func (l Reader) NextDeadline() (time.Time, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	next := int64(never)
	if len(l.deadlines) > 0 {
		next = l.deadlines[0].deadline
	}
	if len(l.nominations.byPod) > 0 {
		next = min(next, l.nominations.soonest)
	}
	return moment(next), next != never
}
