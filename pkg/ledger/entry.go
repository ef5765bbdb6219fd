package ledger

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// entry is a share of one node: an allocation, or a slot. A slot is one of a reservation, or
// one in memory, which turns into its pod's allocation in place. Allocations and slots in memory are
// pooled, so nothing outside the lock may keep a pointer to one.
type entry struct {
	pod       PodRef // of a slot, if it has a name, the only one that may use it
	request   *resources.Request
	scheduler string
	caller    string
	priority  int32
	node      int32
	due       int32 // its place among the deadlines, -1 outside
	state     State // NoAllocation: a slot
	listed    bool  // in named
	overdue   bool  // its deadline passed while a bind was in flight
	movable   bool  // of a slot in memory, see Slot
	podToCome bool  // of a slot, see Slot
	away      bool  // it is off the account until it is put back
	// counts is what it adds to its node's use: a slot counts for what it keeps beyond
	// what its users ask for, so that both add up to the larger of the two.
	counts   *resources.Request
	budgets  [numBudgets]*budget // those it counts in; nil where it is not known whose it is
	within   *entry              // the slot of a reservation that it uses
	slot     *slot               // of reservations
	devices  *deviceGrant
	deadline int64   // of a slot, in Unix nanoseconds
	version  uint64  // newest resourceVersion observed of the pod, 0 if none
	boundBy  *bond   // what the pod was bound with, even where that is gone or not seen yet
	growth   *growth // of an allocation; nil unless a resize is pending

	prev, next *entry // of its node
	sameName   *entry // the next in named, or in the pool
}

// slot is what only slots of reservations have.
type slot struct {
	ref         SlotRef
	uid         types.UID
	policy      AllocatePolicy
	preemptible bool
	availableAt time.Time
	place       int      // in the list of its reservation
	users       []*entry // allocations, and slots in memory that are part of it
}

// bond is what a pod was bound with: a slot, and the UID of its reservation, empty where it is not known.
type bond struct {
	ref SlotRef
	uid types.UID
}

// mayTouch reports whether a request of a caller may change a slot in memory.
func (e *entry) mayTouch(caller string) bool { return MayAll(caller) || caller == e.caller }

func (e *entry) isAllocation() bool { return e.state != NoAllocation }
func (e *entry) inMemory() bool     { return e.state == NoAllocation && e.slot == nil }

// ref names a slot of a reservation. It is empty for anything else, and for nil.
func (e *entry) ref() SlotRef {
	if e == nil || e.slot == nil {
		return SlotRef{}
	}
	return e.slot.ref
}

// isFor reports whether a slot is for one pod only, and that pod is this one.
func (e *entry) isFor(pod PodRef) bool {
	return !e.isAllocation() && !e.away && e.pod.Name == pod.Name && e.pod.Namespace == pod.Namespace &&
		(e.slot == nil || e.slot.ref.Namespace == pod.Namespace) &&
		(e.pod.UID == "" || pod.UID == "" || e.pod.UID == pod.UID)
}

// used reports whether anybody uses the slot of a reservation.
func (e *entry) used() bool { return len(e.slot.users) > 0 }

// isOf reports whether the slot can be one of the reservation of a UID. It returns
// false only where both UIDs are known and differ.
func (e *entry) isOf(uid types.UID) bool { return e.slot.uid == "" || uid == "" || e.slot.uid == uid }

// binding reports whether a bind is in flight that uses the slot.
func (e *entry) binding() bool {
	return e.slot != nil && slices.ContainsFunc(e.slot.users, func(u *entry) bool { return u.state == Binding })
}

// asked returns what the users of a slot ask for of one resource.
func (e *entry) asked(col resources.Column) (sum int64) {
	for _, u := range e.slot.users {
		sum, _ = resources.Add(sum, u.request.Value(col))
	}
	return sum
}

// rest returns what an entry has to count for.
func (e *entry) rest() *resources.Request {
	if e.slot == nil || !e.used() {
		return e.request
	}
	rest := &resources.Request{Unlisted: e.request.Unlisted} // which no pod has
	for _, a := range e.request.Amounts {
		if left := resources.Sub(a.Value, e.asked(a.Column)); left > 0 {
			rest.Amounts = append(rest.Amounts, resources.Amount{Column: a.Column, Value: left})
		}
	}
	for _, p := range e.request.Ports {
		taken := func(u *entry) bool { return slices.ContainsFunc(u.request.Ports, p.CollidesWith) }
		if !slices.ContainsFunc(e.slot.users, taken) {
			rest.Ports = append(rest.Ports, p)
		}
	}
	return rest
}

// nothing is what a slot counts for while it is changed; it is never changed itself.
var nothing = &resources.Request{}

// setRest counts a slot anew after its users have changed.
func (l *account) setRest(e *entry) {
	e.tally(-1)
	was := e.counts
	e.counts = nothing
	l.unuse(e.node, was)
	e.counts = e.rest()
	l.use(e.node, e.counts, 1)
	e.tally(1)
}

// join makes an entry on the slot's node one of its users.
func (l *account) join(e, in *entry) {
	e.within = in
	in.slot.users = append(in.slot.users, e)
	l.setRest(in)
}

// put puts an entry that is nowhere yet on a node's account.
func (l *account) put(e *entry, i int32) {
	e.node, e.prev, e.next = i, l.nodes[i].last, nil
	l.attach(e)
}

// attach puts an entry on its node's account, with the users it has, and where it was in the node's list.
func (l *account) attach(e *entry) {
	n := l.nodes[e.node]
	n.link(e)
	l.draw(e, 1)
	if e.slot != nil {
		n.slots++
		for _, u := range e.slot.users {
			u.within = e
		}
	}
	e.counts = e.rest()
	l.use(e.node, e.counts, 1)
	l.charge(e)
	if e.within != nil {
		l.join(e, e.within)
	}
	for _, p := range e.request.Ports {
		n.occupy(p, e)
	}
	if e.devices != nil {
		l.own(e)
	}
}

// detach takes an entry off its node's account. Its users stay, with capacity of their
// own; it still knows them, and what it is within.
func (l *account) detach(e *entry) {
	n := l.nodes[e.node]
	n.unlink(e)
	if e.slot != nil {
		n.slots--
		for _, u := range e.slot.users {
			u.within = nil
		}
	}
	l.unuse(e.node, e.counts)
	l.draw(e, -1)
	l.discharge(e)
	if in := e.within; in != nil {
		in.slot.users = slices.DeleteFunc(in.slot.users, func(u *entry) bool { return u == e })
		l.setRest(in)
	}
	for _, p := range e.request.Ports {
		n.vacate(p, e)
	}
	if e.devices != nil {
		l.disown(e)
	}
}

// newEntry returns an entry to be filled in.
func (l *account) newEntry() *entry {
	e := l.pool
	if e == nil {
		return &entry{}
	}
	l.pool = e.sameName
	return e
}

// newAllocation makes an allocation that is about to be bound.
func (l *account) newAllocation(p *Placement) *entry {
	e := l.newEntry()
	*e = entry{
		pod: p.Pod, request: p.Request, scheduler: p.Scheduler, caller: p.Caller, priority: p.Priority, deadline: never,
		due: -1,
	}
	l.setState(e, Binding)
	if e.pod.UID != "" {
		l.byUID[e.pod.UID] = e
	} else {
		l.list(e)
	}
	return e
}

// addSlot makes a slot of a spec, puts it on the account of node i and makes it findable.
// Its deadline does not run before schedule.
func (l *account) addSlot(spec *Slot, i int32, within *entry, a *deviceGrant) *entry {
	e := l.newEntry()
	*e = entry{
		pod: spec.Pod, request: spec.Request, scheduler: spec.Scheduler, caller: spec.Caller, priority: spec.Priority,
		deadline: deadlineOf(spec.Deadline), due: -1, within: within, devices: a, movable: spec.Movable,
		podToCome: spec.PodToCome,
	}
	if spec.InMemory() {
		l.memoryCount++
	} else {
		key := spec.Ref.reservation()
		e.slot = &slot{
			ref: spec.Ref, uid: spec.UID, policy: spec.Policy, preemptible: spec.Preemptible,
			availableAt: spec.AvailableAt, place: len(l.reservations[key]),
		}
		l.slots[spec.Ref] = e
		l.reservations[key] = append(l.reservations[key], e)
	}
	if e.pod.Name != "" {
		l.list(e)
	}
	l.put(e, i)
	return e
}

// drop takes an entry off its node's account for good. Its users stay.
func (l *account) drop(e *entry) {
	l.detach(e)
	l.forget(e)
}

// forget makes an entry that is off its node's account unfindable.
func (l *account) forget(e *entry) {
	if e.listed {
		l.unlist(e)
	}
	switch {
	case e.isAllocation():
		l.stateCount[e.state]--
		delete(l.byUID, e.pod.UID)
	case e.slot == nil:
		l.memoryCount--
	default:
		e.slot.users = nil
		delete(l.slots, e.slot.ref)
		l.leaveReservation(e)
	}
	l.unschedule(e)
	l.dropBudgets(e)
}

// recycle lets an allocation, or a slot in memory, that was dropped be used for another one.
func (l *account) recycle(e *entry) {
	if e.slot == nil {
		*e = entry{sameName: l.pool}
		l.pool = e
	}
}

// leaveReservation takes a slot out of its reservation's list. That may be long: the last of the list takes its place.
func (l *account) leaveReservation(e *entry) {
	key := e.slot.ref.reservation()
	all := l.reservations[key]
	last := len(all) - 1
	if last == 0 {
		delete(l.reservations, key)
		return
	}
	all[e.slot.place] = all[last]
	all[e.slot.place].slot.place = e.slot.place
	all[last] = nil
	l.reservations[key] = all[:last]
}

// reservation returns the slots of a reservation, ordered by name.
func (l *account) reservation(key nameKey) []*entry {
	all := slices.Clone(l.reservations[key])
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.slot.ref.Slot, b.slot.ref.Slot) })
	return all
}

// setState moves an allocation to a state and keeps the counts in step.
func (l *account) setState(e *entry, s State) {
	if e.isAllocation() {
		l.stateCount[e.state]--
	}
	l.stateCount[s]++
	e.state = s
}

// release ends an allocation: its capacity is free when this returns, or, if it used a slot, the slot's again.
func (l *account) release(c *entry, why EventType) {
	i, used := c.node, c.within
	l.drop(c)
	l.record(why, c, c.pod)
	l.recycle(c)
	if used != nil {
		l.settle(used, nil)
	}
	l.dropIfEmpty(i)
}

// endSlot drops a slot and records why. pod is the consumer that ended it, if one did.
func (l *account) endSlot(e *entry, why EventType, pod PodRef) {
	l.detach(e)
	l.endDetached(e, why, pod)
}

// endDetached is endSlot for one that is off its node's account already.
func (l *account) endDetached(e *entry, why EventType, pod PodRef) {
	if pod.Name == "" {
		pod = e.pod
	}
	i := e.node
	l.forget(e)
	l.record(why, e, pod)
	l.recycle(e)
	l.dropIfEmpty(i)
}

// settle ends a slot of a reservation, if it has to end, once an allocation that uses it is not being bound any more.
func (l *account) settle(e, c *entry) {
	switch {
	case l.slots[e.slot.ref] != e: // ended by something else meanwhile
	case c != nil && e.slot.policy == Once && c.state == Bound:
		l.endSlot(e, SlotConsumed, c.pod)
	case e.overdue && !e.binding():
		l.endSlot(e, SlotExpired, PodRef{})
	}
}
