package ledger

import (
	"cmp"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// SlotView is a slot as readers see it.
type SlotView struct {
	Slot
	// Consumers are the pods that use it, those being bound included, and those that part of it is kept for in memory.
	Consumers []Consumer
	// Within is the slot that a slot in memory is part of, or empty.
	Within SlotRef
	// Rest is what the slot keeps beyond what its users ask for.
	Rest *resources.Request
	// Given are the devices the slot keeps, those its consumers have included.
	Given []GivenDevices
	// Lost are the IDs of the Given that the node does not have, in the same order; only for slots of reservations.
	Lost []string
	// Overdue: its deadline has passed, and it waits for a bind in flight that uses it.
	// No other pod may use it any more.
	Overdue bool
}

// Consumer is a pod that uses a slot.
type Consumer struct {
	Pod   PodRef
	State State // NoAllocation where it is a slot in memory that is part of the slot
}

// Slots returns all slots, ordered by namespace, reservation, slot and pod, and the
// revision they are of. Those in memory come first.
func (l Reader) Slots() ([]SlotView, uint64) {
	l.mu.RLock()
	views, revision := l.slotViews(), l.revision
	l.mu.RUnlock()
	sortSlots(views)
	return views, revision
}

// ReservationSlots returns the slots of one reservation, ordered by slot.
func (l Reader) ReservationSlots(namespace, name string) []SlotView {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var views []SlotView
	for _, h := range l.reservation(nameKey{namespace, name}) {
		views = append(views, l.slotView(h))
	}
	return views
}

// SlotFor returns the slot of a reservation that is kept for one pod alone; ok is false where there is none.
func (l Reader) SlotFor(pod PodRef) (view SlotView, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if e := l.durableFor(pod); e != nil {
		return l.slotView(e), true
	}
	return SlotView{}, false
}

// InMemory returns the slot that is kept for a pod in memory; ok is false where there is none.
func (l Reader) InMemory(pod PodRef) (view SlotView, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if e := l.find(pod); e != nil && !e.isAllocation() {
		return l.slotView(e), true
	}
	return SlotView{}, false
}

// CallerOf returns the owner of the slot in memory that is kept for a pod; ok is false where there is none.
func (l Reader) CallerOf(pod PodRef) (caller string, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if e := l.find(pod); e != nil && e.inMemory() {
		return e.caller, true
	}
	return "", false
}

// entryOf returns what a pod has: its allocation, or a slot that is kept for it alone, in memory or of a reservation.
func (l *account) entryOf(pod PodRef) *entry {
	if e := l.find(pod); e != nil {
		return e
	}
	return l.durableFor(pod)
}

// Standing returns what a pod has: the state of its allocation, or that a slot is kept for it alone, in memory or of a
// reservation.
func (l Reader) Standing(pod PodRef) (state State, kept bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if e := l.entryOf(pod); e != nil {
		return e.state, !e.isAllocation()
	}
	return NoAllocation, false
}

// HomeOf returns the node on which a pod has its allocation, or a slot in memory.
func (l Reader) HomeOf(pod PodRef) (node string, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if e := l.find(pod); e != nil {
		return l.names[e.node], true
	}
	return "", false
}

// PlaceOf returns the node on which a pod has capacity of its own: its allocation, or a slot that is kept for it alone,
// in memory or of a reservation.
func (l Reader) PlaceOf(pod PodRef) (node string, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if e := l.entryOf(pod); e != nil {
		return l.names[e.node], true
	}
	return "", false
}

// HasSlots reports whether there are any slots of reservations.
func (l Reader) HasSlots() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.slots) > 0
}

// Keeping returns the nodes on which slots of reservations keep something that no pod uses.
func (l Reader) Keeping() map[string]struct{} {
	l.mu.RLock()
	defer l.mu.RUnlock()
	nodes := map[string]struct{}{}
	for _, e := range l.slots {
		if !e.used() || slices.ContainsFunc(e.counts.Amounts,
			func(a resources.Amount) bool { return a.Column != resources.Pods }) {
			nodes[l.names[e.node]] = struct{}{}
		}
	}
	return nodes
}

// UsableSlot is a slot that a pod could be bound with now.
type UsableSlot struct {
	Ref  SlotRef
	Node string
	// Shared says that more than one pod may use it (policy Aligned or Restricted).
	Shared bool
}

// UsableSlots returns those of the pod's slots that it could be bound with now, the one it prefers first. p.Node is not
// looked at. There are none for a pod that has an allocation, or a slot in memory, because that says where it is bound,
// or that is gone.
func (l Reader) UsableSlots(p *Placement) (usable []UsableSlot) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	candidates := l.candidates(p)
	if len(candidates) == 0 || l.find(p.Pod) != nil || l.gone.has(p.Pod.UID) {
		return nil
	}
	m := l.limiterOf(p, p.Caller)
	for _, h := range candidates {
		if h.open() && l.fitWithin(h, p, &m) {
			usable = append(usable, UsableSlot{Ref: h.slot.ref, Node: l.names[h.node], Shared: h.slot.policy != Once})
		}
	}
	return usable
}

// PreferredSlots is UsableSlots, but for a member of a gang that has started, the slot that its slot in memory is part
// of. It may be bound elsewhere, but then nobody uses that slot. No other pod is meant for it.
func (l Reader) PreferredSlots(p *Placement) []UsableSlot {
	if kept, ok := l.InMemory(p.Pod); ok && kept.Movable && kept.Within != (SlotRef{}) {
		return []UsableSlot{{Ref: kept.Within, Node: kept.Node, Shared: true}}
	}
	return l.UsableSlots(p)
}

// ExactFirst returns slots, first those that keep exactly what is requested of every resource that they keep;
// the others follow in their order. So a small pod does not take the slot of a large one.
func (l Reader) ExactFirst(refs []SlotRef, request *resources.Request) []SlotRef {
	if len(refs) < 2 {
		return refs
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	sorted := make([]SlotRef, 0, len(refs))
	var others []SlotRef
	for _, ref := range refs {
		if h := l.slots[ref]; h != nil && h.keepsJust(request) {
			sorted = append(sorted, ref)
		} else {
			others = append(others, ref)
		}
	}
	return append(sorted, others...)
}

func (e *entry) keepsJust(request *resources.Request) bool {
	return !slices.ContainsFunc(e.request.Amounts,
		func(a resources.Amount) bool { return request.Value(a.Column) != a.Value })
}

func (l *account) slotViews() []SlotView {
	views := make([]SlotView, 0, len(l.slots)+l.memoryCount)
	for _, e := range l.slots {
		views = append(views, l.slotView(e))
	}
	for _, e := range l.named {
		for ; e != nil; e = e.sameName {
			if e.inMemory() {
				views = append(views, l.slotView(e))
			}
		}
	}
	return views
}

func sortSlots(views []SlotView) {
	slices.SortFunc(views, func(a, b SlotView) int {
		return cmp.Or(compareSlots(a.Ref, b.Ref), comparePods(a.Pod, b.Pod))
	})
}

func comparePods(a, b PodRef) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

func compareSlots(a, b SlotRef) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Slot, b.Slot))
}

// lost returns the IDs of the devices that a slot keeps and its node does not have.
func (l *account) lost(e *entry) []string {
	if e.devices == nil {
		return nil
	}
	n := l.nodes[e.node]
	return n.without(n.allDevices(), e.devices.given)
}

func (l *account) slotView(e *entry) SlotView {
	view := SlotView{
		Slot: Slot{
			Ref: e.ref(), Node: l.names[e.node], Request: e.request, Policy: Once, Scheduler: e.scheduler,
			Priority: e.priority, Pod: e.pod, Devices: e.asks(), Movable: e.movable, Deadline: moment(e.deadline),
		},
		Within: e.within.ref(), Rest: e.counts, Given: e.given(), Overdue: e.overdue,
	}
	if e.slot == nil {
		return view
	}
	view.Policy, view.Preemptible, view.AvailableAt = e.slot.policy, e.slot.preemptible, e.slot.availableAt
	view.Lost = l.lost(e)
	for _, u := range e.slot.users {
		view.Consumers = append(view.Consumers, Consumer{Pod: u.pod, State: u.state})
	}
	slices.SortFunc(view.Consumers, func(a, b Consumer) int { return comparePods(a.Pod, b.Pod) })
	return view
}
