package ledgermodel

import (
	"time"

	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Steps lists random things that can happen to a ledger. One that is listed twice happens more often.
func Steps(l *ledger.Ledger, w *World) []func(*rapid.T) {
	reserve := func(t *rapid.T) { l.Reserve(w.Plan(t), w.Now) }
	bind := func(t *rapid.T) { at := w.Placement(t); _, _ = l.StartBind(&at, w.Now) }
	steps := []func(*rapid.T){
		reserve, reserve, bind, bind,
		func(t *rapid.T) { at := w.Placement(t); _, _ = l.ChangeBind(&at, w.Now) },
		func(t *rapid.T) { l.Confirm(w.Pod(t), w.Node(t)) },
		func(t *rapid.T) { l.Exchange(w.Exchange(t, nil), w.Now) },
		func(t *rapid.T) { l.BindFailed(w.Pod(t), w.Node(t)) },
		func(t *rapid.T) { l.Unreserve(w.Placements(t)) },
		func(t *rapid.T) { w.Pass(t); l.Expire(w.Now) },
		func(t *rapid.T) { l.ObserveNode(w.NodeObservation(t)) },
		func(t *rapid.T) { l.RemoveNode(w.Node(t)) },
		func(t *rapid.T) { l.ObservePod(w.PodObservation(t, l)) },
		func(t *rapid.T) { l.ObserveUnbound(w.Pod(t), w.Scheduler(t)) },
		func(t *rapid.T) { at := w.Placement(t); l.Nominate(&at, w.Now.Add(time.Minute)) },
		func(t *rapid.T) { l.RemovePod(w.Pod(t), w.Version(t)) },
		func(t *rapid.T) { w.Recreate(t) },
		func(t *rapid.T) { l.Reserve(w.SlotPlan(t), w.Now) },
		func(t *rapid.T) { l.ObserveSlot(w.Slot(t, true)) },
		func(t *rapid.T) { l.ReleaseSlots("ns", w.SlotRef(t).Name) },
	}
	if w.Devices {
		steps = append(steps, func(t *rapid.T) { l.ObserveDevices(w.Node(t), w.NodeDevices(t)) })
	}
	return steps
}
