package rest

import (
	"cmp"
	"time"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// listOf makes something of each element of a list.
func listOf[T, A any](list []T, of func(*T) A) []A {
	made := make([]A, len(list))
	for i := range list {
		made[i] = of(&list[i])
	}
	return made
}

// newRejection is a refusal on the wire. Its text is message, or where that is empty the refusal's own.
func newRejection(reason, message string, r *ledger.Rejection) reserver.Rejection {
	if message == "" {
		message = r.Message()
	}
	return reserver.Rejection{
		Namespace: r.Pod.Namespace, Pod: r.Pod.Name, UID: string(r.Pod.UID), Node: r.Node,
		Reason: reason, Resource: r.Resource, Requested: r.Requested, Free: r.Free,
		Limit: r.Limit, DeviceClaim: deviceClaimName(r.DeviceClaim),
		AllocatedOn: r.AllocatedOn, Holders: newHolders(r.Holders), Message: message,
	}
}

func newHolders(holders []ledger.Holder) []reserver.Holder {
	return listOf(holders, func(h *ledger.Holder) reserver.Holder {
		return reserver.Holder{
			Namespace: cmp.Or(h.Pod.Namespace, h.Slot.Namespace), Pod: h.Pod.Name, UID: string(h.Pod.UID),
			Reservation: slotName(h.Slot), Scheduler: h.Scheduler, State: h.State.OrReserved(), Amount: h.Amount,
		}
	})
}

func newNode(view *ledger.NodeView) reserver.Node {
	n := reserver.Node{
		Name: view.Name, UID: string(view.UID), Exists: view.Exists, Unschedulable: view.Unschedulable,
		Overcommitted: view.Overcommitted(), AllocationCount: view.Allocations,
		Resources: make(map[string]reserver.NodeAmount, len(view.Amounts)),
		Labels:    view.Labels, Pool: poolOf(view.Labels),
		Devices: newNodeDevices(view.Devices),
	}
	for _, a := range view.Amounts {
		n.Resources[string(a.Resource)] = reserver.NodeAmount{
			Allocatable: a.Allocatable, Bound: a.Bound, Reserved: a.Reserved, Free: a.Free,
		}
	}
	return n
}

func newAllocation(t *resources.Table, view *ledger.AllocationView) reserver.Allocation {
	return reserver.Allocation{
		Namespace: view.Pod.Namespace, Pod: view.Pod.Name, UID: string(view.Pod.UID), Node: view.Node,
		State: view.State.String(), Scheduler: view.Scheduler, Priority: view.Priority,
		Requests: requestAmounts(t, view.Request), HostPorts: hostPortNames(view.Request),
		Reservation: slotName(view.Slot), Devices: newGiven(view.Given),
	}
}

// utc keeps the zero time zero.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

// slotName is namespace/name/slot, or nothing.
func slotName(ref ledger.SlotRef) string {
	if ref.Name == "" {
		return ""
	}
	return ref.String()
}

func newSlot(t *resources.Table, c *steady.Clock, view *ledger.SlotView) reserver.Slot {
	return reserver.Slot{
		Name: view.Ref.Slot, Node: view.Node, Requests: requestAmounts(t, view.Request), Free: requestAmounts(t, view.Rest),
		HostPorts: hostPortNames(view.Request), AvailableAt: utc(view.AvailableAt),
		ExpiresAt: utc(c.WallAt(view.Deadline)), Overdue: view.Overdue,
		Pod: view.Pod.Name, UID: string(view.Pod.UID), Movable: view.Movable, Devices: newGiven(view.Given),
		Within: slotName(view.Within),
		Consumers: listOf(view.Consumers, func(c *ledger.Consumer) reserver.Consumer {
			return reserver.Consumer{Pod: c.Pod.Name, UID: string(c.Pod.UID), State: c.State.OrReserved()}
		}),
	}
}

// namespaceOf is the namespace of a slot's reservation, or of the pod of a slot in memory.
func namespaceOf(view *ledger.SlotView) string {
	return cmp.Or(view.Ref.Namespace, view.Pod.Namespace)
}

func newNodeSlot(t *resources.Table, c *steady.Clock, view *ledger.SlotView) reserver.NodeSlot {
	return reserver.NodeSlot{
		Namespace: namespaceOf(view), Reservation: view.Ref.Name, Scheduler: view.Scheduler, Priority: view.Priority,
		Preemptible: view.Preemptible, Policy: string(view.Policy), Slot: newSlot(t, c, view),
	}
}

// newReservation makes a reservation with view as its first slot.
func newReservation(c *steady.Clock, view *ledger.SlotView) reserver.Reservation {
	return reserver.Reservation{
		Namespace: namespaceOf(view), Name: view.Ref.Name, Durable: !view.InMemory(), Scheduler: view.Scheduler,
		Priority: view.Priority, Preemptible: view.Preemptible, Policy: string(view.Policy),
		ExpiresAt: utc(c.WallAt(view.Deadline)), Slots: []reserver.Slot{},
	}
}

// addSlot adds a slot to a reservation.
func addSlot(r *reserver.Reservation, t *resources.Table, c *steady.Clock, view *ledger.SlotView) {
	r.Slots = append(r.Slots, newSlot(t, c, view))
	if at := utc(c.WallAt(view.Deadline)); !at.IsZero() && (r.ExpiresAt.IsZero() || at.Before(r.ExpiresAt)) {
		r.ExpiresAt = at
	}
}
