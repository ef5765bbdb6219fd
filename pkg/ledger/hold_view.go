package ledger

import (
	"cmp"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// HoldView is a hold as readers see it.
type HoldView struct {
	Hold
	// Consumers are the pods that use it, those being bound included, and those that
	// part of it is kept for in memory.
	Consumers []Consumer
	// Within is the slot that a slot in memory is part of, or empty.
	Within HoldRef
	// Rest is what the hold keeps beyond what its users ask for.
	Rest *resources.Request
	// Given are the devices the hold keeps, those its consumers have included.
	Given []GivenDevices
	// Overdue: its deadline has passed, and it waits for a bind in flight that uses it.
	// No other pod may use it any more.
	Overdue bool
}

// Consumer is a pod that uses a hold.
type Consumer struct {
	Pod   PodRef
	State State // NoClaim where it is a slot in memory that is part of the hold
}

// Holds returns all holds, ordered by namespace, reservation, slot and pod, and the
// revision they are of. Those in memory come first.
func (l Reader) Holds() ([]HoldView, uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.holdViews(), l.revision
}

// ReservationHolds returns the holds of one reservation, ordered by slot.
func (l Reader) ReservationHolds(namespace, name string) []HoldView {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var views []HoldView
	for _, h := range l.reservation(nameKey{namespace, name}) {
		views = append(views, h.view())
	}
	return views
}

// HoldFor returns the slot of a reservation that is kept for one pod alone; ok is false
// where there is none.
func (l Reader) HoldFor(pod PodRef) (view HoldView, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if h := l.durableFor(pod); h != nil {
		return h.view(), true
	}
	return HoldView{}, false
}

// InMemory returns the slot that is kept for a pod in memory; ok is false where there is
// none.
func (l Reader) InMemory(pod PodRef) (view HoldView, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.lookup(pod) != nil {
		return HoldView{}, false
	}
	if g := l.inMemory(pod); g != nil {
		return g.view(), true
	}
	return HoldView{}, false
}

// HomeOf returns the node on which a pod has its claim, or a slot in memory.
func (l Reader) HomeOf(pod PodRef) (node string, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if c := l.lookup(pod); c != nil {
		return l.nodes[c.node].name, true
	}
	if g := l.inMemory(pod); g != nil {
		return g.Node, true
	}
	return "", false
}

func (l *account) holdViews() []HoldView {
	views := make([]HoldView, 0, len(l.holds)+l.memoryCount)
	for _, h := range l.holds {
		views = append(views, h.view())
	}
	for _, h := range l.holdsByPod {
		for ; h != nil && h.InMemory(); h = h.samePod {
			views = append(views, h.view())
		}
	}
	slices.SortFunc(views, func(a, b HoldView) int { return cmp.Or(compareHolds(a.Ref, b.Ref), comparePods(a.Pod, b.Pod)) })
	return views
}

func comparePods(a, b PodRef) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

func (h *hold) view() HoldView {
	view := HoldView{Hold: h.Hold, Rest: h.rest, Given: h.given, Overdue: h.overdue}
	view.UID = ""
	if h.within != nil {
		view.Within = h.within.Ref
	}
	for _, c := range h.consumers {
		view.Consumers = append(view.Consumers, Consumer{Pod: c.pod, State: c.state})
	}
	for _, g := range h.guests {
		view.Consumers = append(view.Consumers, Consumer{Pod: g.Pod})
	}
	slices.SortFunc(view.Consumers, func(a, b Consumer) int { return comparePods(a.Pod, b.Pod) })
	return view
}
