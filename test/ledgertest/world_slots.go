package ledgertest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

var (
	reservationNames = []string{"r1", "r2", "r3"}
	slotNames        = []string{"x", "y", "z"}
	policies         = []ledger.AllocatePolicy{ledger.Once, ledger.Aligned, ledger.Restricted}
	// reservationUIDs are of reservations that may have the same name.
	reservationUIDs = []types.UID{"", "1", "1", "2"}
)

// SlotRef draws the name of a slot; now and then in a namespace without pods.
func (w *World) SlotRef(t *rapid.T) ledger.SlotRef {
	ref := ledger.SlotRef{
		Namespace: "ns", Name: oneOf(t, "reservation", reservationNames),
		Slot: oneOf(t, "slot", slotNames),
	}
	if Pick(t, "namespace", 8) == 7 {
		ref.Namespace = "other"
	}
	return ref
}

// SlotRefs draws the slots a pod may use; not all of them exist.
func (w *World) SlotRefs(t *rapid.T) []ledger.SlotRef {
	var refs []ledger.SlotRef
	if Pick(t, "many", 16) == 15 {
		for range 12 {
			for _, name := range reservationNames {
				refs = append(refs, ledger.SlotRef{Namespace: "ns", Name: name, Slot: oneOf(t, "slot", slotNames)})
			}
		}
	}
	for range max(0, Pick(t, "candidates", 6)-2) {
		refs = append(refs, w.SlotRef(t))
	}
	return refs
}

// Slot draws a slot; some are kept for one pod alone.
func (w *World) Slot(t *rapid.T, observed bool) ledger.Slot {
	h := ledger.Slot{
		Ref: w.SlotRef(t), Node: w.Node(t), Request: w.Request(t, observed),
		Policy:    oneOf(t, "policy", policies),
		Scheduler: oneOf(t, "scheduler", schedulers),
		Priority:  int32(Pick(t, "priority", 3)),
		Deadline:  w.Deadline(t),
		UID:       oneOf(t, "reservation", reservationUIDs),
	}
	// The slots of a reservation are mostly alike in this.
	h.Preemptible = (h.Ref.Name != "r1") != (Pick(t, "odd", 16) == 15)
	if Pick(t, "for one pod", 4) == 3 {
		h.Pod, h.PodToCome = w.Pod(t), Pick(t, "pod-to-come", 2) == 1
	}
	h.Caller = w.caller(t)
	h.Devices = w.heldDevices(t, h.Pod)
	h.Request.ByDRA = nil // nothing by DRA is kept
	h.Request = h.Devices.Counted(w.Table, h.Request)
	if observed && h.Devices != nil && Pick(t, "what was held is known", 2) == 1 {
		h.Devices = w.heldBefore(t, h.Devices)
	}
	return h
}

// NewPod draws a pod that is not gone and has no allocation, if need be by making it.
func (w *World) NewPod(t *rapid.T, l *ledger.Ledger) ledger.PodRef {
	ref := ledger.PodRef{Namespace: "ns", Name: oneOf(t, "pod", podNames)}
	for range 3 {
		ref.UID = types.UID(fmt.Sprintf("%s-%d", ref.Name, w.incarnation[ref.Name]))
		_, allocated := l.Allocation(ref)
		ask := ledger.Placement{Pod: ref, Request: &resources.Request{}}
		gone := l.AppendFit(nil, &ask, []string{""})[0].Reason == ledger.PodGone
		if !allocated && !gone {
			break
		}
		w.Next(ref.Name)
	}
	return ref
}

// LargeNode draws a node with capacity for several slots.
func (w *World) LargeNode(t *rapid.T, name string) ledger.NodeObservation {
	o := ledger.NodeObservation{Name: name, UID: "u1"}
	cpu := w.value(t, "cpu", 12)
	o.Allocatable = []resources.Amount{
		{Column: resources.CPU, Value: 8 + min(cpu, math.MaxInt64-8)},
		{Column: resources.Memory, Value: 8 + int64(Pick(t, "memory", 12))},
		{Column: resources.Pods, Value: 4 + int64(Pick(t, "pods", 9))},
	}
	w.byDRA(t, &o)
	slices.SortFunc(o.Allocatable, func(a, b resources.Amount) int { return int(a.Column) - int(b.Column) })
	w.lastNode = o
	return o
}

// Deadline draws when something ends: soon, just now, or never.
func (w *World) Deadline(t *rapid.T) time.Time {
	if Pick(t, "expires", 5) == 0 {
		return time.Time{}
	}
	return w.Now.Add(time.Duration(Pick(t, "ttl", 8)-1) * time.Second)
}

// SlotPlan draws a few slots of reservations; sometimes one of them twice, and sometimes
// with another one for the same pod.
func (w *World) SlotPlan(t *rapid.T) ledger.Plan {
	plan := ledger.Plan{Mode: w.Mode(t)}
	for range oneOf(t, "slots", []int{1, 1, 1, 2, 2, 3, 4, 0}) {
		h := w.Slot(t, false)
		if len(plan.Slots) > 0 {
			before := plan.Slots[0]
			switch Pick(t, "again", 8) {
			case 5:
				h = before
			case 6:
				h.Pod, h.Node = before.Pod, before.Node
			case 7:
				h.Pod, h.Node, h.Request, h.Devices = before.Pod, before.Node, before.Request, before.Devices
			}
		}
		plan.Slots = append(plan.Slots, h)
	}
	return plan
}
