package ledger

import (
	"cmp"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// HoldView is a hold as readers see it.
type HoldView struct {
	Hold
	// Consumers are the pods that use it, those being bound included.
	Consumers []Consumer
	// Rest is what the hold keeps beyond what its consumers ask for.
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
	State State
}

// Holds returns all holds, ordered by namespace, reservation and slot, and the
// revision they are of.
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

// HoldFor returns the hold kept for one pod alone; ok is false where there is none.
func (l Reader) HoldFor(pod PodRef) (view HoldView, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if h := l.holdFor(pod); h != nil {
		return h.view(), true
	}
	return HoldView{}, false
}

func (l *account) holdViews() []HoldView {
	views := make([]HoldView, 0, len(l.holds))
	for _, h := range l.holds {
		views = append(views, h.view())
	}
	slices.SortFunc(views, func(a, b HoldView) int {
		return cmp.Or(cmp.Compare(a.Ref.Namespace, b.Ref.Namespace), cmp.Compare(a.Ref.Name, b.Ref.Name), cmp.Compare(a.Ref.Slot, b.Ref.Slot))
	})
	return views
}

func (h *hold) view() HoldView {
	view := HoldView{Hold: h.Hold, Rest: h.rest, Given: h.given, Overdue: h.overdue}
	view.UID = ""
	for _, c := range h.consumers {
		view.Consumers = append(view.Consumers, Consumer{Pod: c.pod, State: c.state})
	}
	slices.SortFunc(view.Consumers, func(a, b Consumer) int {
		return cmp.Or(cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return view
}
