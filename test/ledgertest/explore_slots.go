package ledgertest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// slotActions lists what can happen to slots.
func slotActions(e *Explorer, w *World) []func(*rapid.T) {
	place := func(t *rapid.T) { e.Reserve(w.SlotPlan(t), w.Now) }
	use := func(t *rapid.T) { useSlot(t, e, w) }
	preempt := func(t *rapid.T) { preemptSlot(t, e, w) }
	try := func(t *rapid.T) {
		plan, at := w.SlotPlan(t), user(t, e, w)
		plan.Slots = append(plan.Slots, w.Plan(t).Slots...)
		e.Try(plan, w.Victims(t), &at, append(nodeNames, "nowhere"))
	}
	return []func(*rapid.T){
		try, place, place, place, use, use, use, use, preempt, preempt,
		func(t *rapid.T) { e.ObserveSlot(w.Slot(t, true)) },
		func(t *rapid.T) { observeSlotOfPod(t, e, w) },
		func(t *rapid.T) { observeSlotAgain(t, e, w) },
		func(t *rapid.T) { observeUser(t, e, w) },
		func(t *rapid.T) { observeUser(t, e, w) },
		func(t *rapid.T) {
			ref := drawSlot(t, e, w).Ref
			e.SetSlotDeadline(ref.Namespace, ref.Name, w.Deadline(t))
		},
		func(t *rapid.T) { ref := drawSlot(t, e, w).Ref; e.ReleaseSlots(ref.Namespace, ref.Name) },
		func(t *rapid.T) { ref := drawSlot(t, e, w).Ref; e.ReleaseSlots(ref.Namespace, ref.Name, ref.Slot, "x") },
		func(t *rapid.T) { swap(t, e, w) },
		func(t *rapid.T) { askAboutSlot(t, e, w) },
		func(t *rapid.T) { w.Pass(t); e.Expire(w.Now) },
	}
}

// drawSlot returns a slot that exists, or any.
func drawSlot(t *rapid.T, e *Explorer, w *World) ledger.Slot {
	slots, _ := e.Slots()
	slots = slices.DeleteFunc(slots, func(h ledger.SlotView) bool { return h.InMemory() })
	if len(slots) == 0 {
		return w.Slot(t, true)
	}
	return slots[Pick(t, "slot", len(slots))].Slot
}

// user draws a pod that may use a slot, on its node.
func user(t *rapid.T, e *Explorer, w *World) ledger.Placement {
	h := drawSlot(t, e, w)
	at := w.Placement(t)
	at.Node, at.Slots = h.Node, append(at.Slots, h.Ref)
	if Pick(t, "new pod", 4) > 0 {
		at.Pod = w.NewPod(t, e.Ledger)
	}
	if h.Pod.Name != "" {
		at.Pod = w.ExistingPodNamed(t, h.Pod.Name)
		if h.Pod.UID != "" && rapid.Bool().Draw(t, "the pod itself") {
			at.Pod.UID = h.Pod.UID
		}
	}
	if Pick(t, "as large as the slot", 3) == 2 {
		at.Request = h.Request
	}
	return at
}

// useSlot binds or reserves for a pod that may use a slot.
func useSlot(t *rapid.T, e *Explorer, w *World) {
	at := user(t, e, w)
	switch Pick(t, "how", 8) {
	case 4, 5, 6:
		plan := w.Plan(t)
		if Pick(t, "with others", 3) > 0 {
			plan.Slots = nil
		}
		plan.Slots = append(plan.Slots, at.Slot(w.Deadline(t)))
		e.Reserve(plan, w.Now)
	case 7:
		e.Preempt(&at, w.Now)
	default:
		e.StartBind(&at, w.Now)
	}
}

// preemptSlot binds a pod that may end slots, mostly one that is more important
// than any slot and wants the capacity of one, and at times more.
func preemptSlot(t *rapid.T, e *Explorer, w *World) {
	at := w.Placement(t)
	at.Pod = w.NewPod(t, e.Ledger)
	h := drawSlot(t, e, w)
	if Pick(t, "there", 4) > 0 {
		at.Node, at.Priority = h.Node, 3
	}
	switch Pick(t, "size", 3) {
	case 1:
		at.Request = h.Request
	case 2:
		at.Slots = append(at.Slots, h.Ref)
	}
	e.Preempt(&at, w.Now)
}

// observeSlotOfPod finds a slot of a pod that has an allocation.
func observeSlotOfPod(t *rapid.T, e *Explorer, w *World) {
	c := drawAllocation(t, e, w)
	h := w.Slot(t, true)
	h.Pod, h.Ref.Namespace = c.Pod, c.Pod.Namespace
	if Pick(t, "elsewhere", 4) > 0 {
		h.Node = c.Node
	}
	e.ObserveSlot(h)
}

// askAboutSlot asks where a pod that may use a slot would fit.
func askAboutSlot(t *rapid.T, e *Explorer, w *World) {
	at := user(t, e, w)
	e.Ask(&at, append(nodeNames, "nowhere"), w.Victims(t))
}

// observeSlotAgain finds a slot in its object again, perhaps with more time.
func observeSlotAgain(t *rapid.T, e *Explorer, w *World) {
	h := drawSlot(t, e, w)
	if rapid.Bool().Draw(t, "extended") && !h.Deadline.IsZero() {
		h.Deadline = h.Deadline.Add(time.Duration(Pick(t, "by", 5)) * time.Second)
	}
	if Pick(t, "lost before", 3) == 2 {
		e.ReleaseSlots(h.Ref.Namespace, h.Ref.Name, h.Ref.Slot)
	}
	e.ObserveSlot(h)
}

// observeUser finds a pod bound that says it was bound with a slot.
func observeUser(t *rapid.T, e *Explorer, w *World) {
	at := user(t, e, w)
	o := w.PodObservation(t, e.Ledger)
	o.Pod, o.Node, o.Slot = at.Pod, at.Node, at.Slots[len(at.Slots)-1]
	o.SlotUID = oneOf(t, "reservation", reservationUIDs)
	if o.Pod.UID == "" {
		o.Pod = w.ExistingPodNamed(t, o.Pod.Name)
	}
	if len(at.Request.Unlisted) == 0 {
		o.Request = at.Request
	}
	o.Devices = w.observedDevices(t, o.Pod, e.Ledger)
	e.ObservePod(o)
}

// swap deletes a pod and keeps its capacity.
func swap(t *rapid.T, e *Explorer, w *World) {
	c := drawAllocation(t, e, w)
	h := w.Slot(t, true)
	if c.Pod.UID == "" {
		c.Pod = w.ExistingPodNamed(t, c.Pod.Name)
	}
	e.RemovePodHolding(c.Pod, w.Version(t), h)
}
