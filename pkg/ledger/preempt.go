package ledger

import (
	"cmp"
	"math"
	"slices"
)

// victim is a reservation that a pod may end to get its capacity on one node.
type victim struct {
	key      nameKey
	priority int32    // the highest of its slots
	slots    []*entry // those on the node
}

// preemptor finds what one pod may end. It remembers what it found of
// reservations, which may have slots on many of the nodes it is asked about.
type preemptor struct {
	ledger   *account
	priority int32              // of the pod
	offers   map[int32][]*entry // what the pod may use itself, by node
	known    map[nameKey]int32  // see priorityOf
}

func (l *account) newPreemptor(priority int32, offers map[int32][]*entry) *preemptor {
	return &preemptor{ledger: l, priority: priority, offers: offers, known: map[nameKey]int32{}}
}

// priorityOf returns the highest priority of the slots of a reservation. It is the highest there is where one of them
// is being bound, or does not allow that it is ended.
func (x *preemptor) priorityOf(key nameKey) int32 {
	priority, ok := x.known[key]
	if !ok {
		priority = math.MinInt32
		for _, h := range x.ledger.reservations[key] {
			if priority = max(priority, h.priority); !h.slot.preemptible || h.binding() {
				priority = math.MaxInt32
			}
		}
		x.known[key] = priority
	}
	return priority
}

// all lists the reservations with slots on a node that the pod may end, lowest priority first.
func (x *preemptor) all(i int32) []victim {
	var victims []victim
	for _, h := range x.ledger.nodes[i].reservedSlots() {
		key := h.slot.ref.reservation()
		priority := x.priorityOf(key)
		if priority >= x.priority {
			continue
		}
		k := slices.IndexFunc(victims, func(v victim) bool { return v.key == key })
		if k < 0 {
			k = len(victims)
			victims = append(victims, victim{key: key, priority: priority})
		}
		victims[k].slots = append(victims[k].slots, h)
	}
	slices.SortFunc(victims, func(a, b victim) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.key.namespace, b.key.namespace),
			cmp.Compare(a.key.name, b.key.name))
	})
	return victims
}

// fits checks the pod against a node as if the victims had ended. What they have elsewhere matters only to budgets.
func (x *preemptor) fits(i int32, p *Placement, victims []victim) bool {
	t := Trial{account: x.ledger}
	defer t.revert()
	m := t.limiterOf(p, p.Caller)
	everywhere := m.whole.Reason != Fits
	for _, v := range victims {
		slots := v.slots
		if everywhere {
			slots = x.ledger.reservations[v.key]
		}
		for _, h := range slots {
			t.take(h)
		}
	}
	m = t.limiterOf(p, p.Caller)
	_, v := t.fitAny(i, p, x.offers[i], &m)
	return v.Reason == Fits
}

// find returns the reservations that have to end for the pod to fit a node: of those it may end, as many are kept as
// can be, those of higher priority first. ok is false where even all of them would not help.
func (x *preemptor) find(i int32, p *Placement) (victims []victim, ok bool) {
	victims = x.all(i)
	if len(victims) == 0 || !x.fits(i, p, victims) {
		return nil, false
	}
	for k := len(victims) - 1; k >= 0; k-- {
		if fewer := slices.Delete(slices.Clone(victims), k, k+1); x.fits(i, p, fewer) {
			victims = fewer
		}
	}
	return victims, true
}

// preempt ends the reservations that must end for a pod that does not fit a node to fit there, and reports whether it
// fits then. A reservation ends as a whole, on all its nodes. Nothing is ended where that would not help.
func (l *account) preempt(i int32, p *Placement) bool {
	victims, ok := l.newPreemptor(p.Priority, l.offersTo(p)).find(i, p)
	for _, v := range victims {
		for _, h := range l.reservation(v.key) {
			l.endSlot(h, SlotPreempted, p.Pod)
		}
	}
	return ok
}
