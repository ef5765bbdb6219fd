package ledger

import "k8s.io/apimachinery/pkg/types"

// find returns what a pod has: its allocation, else the slot that is kept for it in memory, else nil. Where the one or
// the other was made for a name, before the pod had a UID, it is the pod's, unless the pod is known to be gone.
func (l *account) find(pod PodRef) *entry {
	if pod.UID != "" {
		if c := l.byUID[pod.UID]; c != nil && !c.away {
			return c
		}
	}
	if len(l.named) == 0 {
		return nil
	}
	for e := l.named[pod.key()]; e != nil && e.slot == nil; e = e.sameName {
		switch {
		case e.away:
		case pod.UID == "", e.pod.UID == pod.UID, e.pod.UID == "" && !l.gone.has(pod.UID):
			return e
		}
	}
	return nil
}

// allocationOf returns the allocation of a pod, or nil.
func (l *account) allocationOf(pod PodRef) *entry {
	if e := l.find(pod); e != nil && e.isAllocation() {
		return e
	}
	return nil
}

// keptFor returns the slots that are kept for one pod alone, of what goes by its name from
// the first on: those in memory come before the others.
func (e *entry) keptFor(pod PodRef) (kept []*entry) {
	for ; e != nil; e = e.sameName {
		if e.isFor(pod) {
			kept = append(kept, e)
		}
	}
	return kept
}

// durableFor returns a slot of a reservation that is kept for one pod alone and has not run out, or nil.
func (l *account) durableFor(pod PodRef) *entry {
	if len(l.slots) == 0 {
		return nil
	}
	for e := l.named[pod.key()]; e != nil; e = e.sameName {
		if e.slot != nil && e.isFor(pod) && !e.overdue {
			return e
		}
	}
	return nil
}

// identify gives what was made by name the UID of the pod that came to exist, and
// reports whether it needed one. The caller records that.
func (l *account) identify(e *entry, uid types.UID) bool {
	if e.pod.UID != "" || uid == "" {
		return false
	}
	e.pod.UID = uid
	if e.isAllocation() {
		l.byUID[uid] = e
	}
	return true
}

// adopt identifies what a pod has and records it.
func (l *account) adopt(e *entry, uid types.UID) {
	if !l.identify(e, uid) {
		return
	}
	kind := AllocationIdentified
	if !e.isAllocation() {
		kind = SlotIdentified
	}
	l.record(kind, e, e.pod)
}

// rank orders what goes by one name: the newest allocation made for the name or from a slot in memory, then those
// slots, the newest first, then slots of reservations in the order they were made.
func (e *entry) rank() int {
	switch {
	case e.isAllocation():
		return 0
	case e.slot == nil:
		return 1
	default:
		return 2
	}
}

// list makes an entry findable by its pod's name. An older allocation of the name is not findable any more.
func (l *account) list(e *entry) {
	key, rank := e.pod.key(), e.rank()
	var last *entry
	next := l.named[key]
	for next != nil && (next.rank() < rank || e.slot != nil) {
		last, next = next, next.sameName
	}
	e.sameName, e.listed = next, true
	if last == nil {
		l.named[key] = e
	} else {
		last.sameName = e
	}
	if next != nil && next.isAllocation() {
		l.unlist(next)
	}
}

func (l *account) unlist(e *entry) {
	key := e.pod.key()
	switch first := l.named[key]; {
	case first != e:
		for first.sameName != e {
			first = first.sameName
		}
		first.sameName = e.sameName
	case e.sameName == nil:
		delete(l.named, key)
	default:
		l.named[key] = e.sameName
	}
	e.sameName, e.listed = nil, false
}

// turn makes a slot in memory, which is off the account, an allocation of what its pod asks for now.
func (l *account) turn(e *entry, p *Placement) {
	l.adopt(e, p.Pod.UID)
	l.memoryCount--
	l.setState(e, Binding)
	l.unschedule(e)
	e.request, e.deadline, e.movable = p.Request, never, false
	if e.pod.UID != "" {
		l.byUID[e.pod.UID] = e
	}
	if l.named[e.pod.key()] != e {
		l.unlist(e)
		l.list(e)
	}
}
