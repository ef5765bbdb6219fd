package reservations

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// note takes in one event. c.mu is held.
func (c *Controller) note(e *ledger.Event) {
	if e.Type.OfSlot() && e.Slot.Name == "" { // in memory: no object is concerned
		if e.Type == ledger.SlotReleased || e.Type == ledger.SlotExpired {
			c.Retry()
		}
		return
	}
	switch e.Type {
	case ledger.SlotPlaced:
		c.orphans.Remove(e.Slot)
	case ledger.SlotConsumed, ledger.SlotReleased, ledger.SlotExpired, ledger.SlotPreempted:
		c.noteEnding(e.Slot, ending{e.Type, e.Pod})
		c.Retry() // a used up slot frees what its pod does not need
	case ledger.AllocationBound, ledger.AllocationRemoved, ledger.AllocationResized, ledger.AllocationMoved,
		ledger.AllocationLinked:
		if r := c.records[reservationOf(e.Slot)]; r != nil {
			c.bringSoon(r)
		}
		if e.Type != ledger.AllocationBound {
			c.Retry()
		}
	case ledger.AllocationBindFailed, ledger.NodeUpdated:
		c.Retry()
	case ledger.DevicesUpdated:
		c.devicesChanged(e.Node)
		c.Retry()
	case ledger.NodeRemoved:
		c.nodeGone(e.Node)
	}
}

func (c *Controller) noteEnding(ref ledger.SlotRef, end ending) {
	key := reservationOf(ref)
	if r := c.records[key]; r != nil && r.ended(ref.Slot, end) {
		c.bringSoon(r)
		return
	}
	c.orphans.Add(ref, end)
}

// The status of a large gang is large: changes are collected for a while, in
// proportion to its slots, so that a thousand binds are not as many writes.
const (
	collectPerSlot = 200 * time.Microsecond
	collectFrom    = 2 * time.Millisecond
)

// bringSoon queues the object, which is then brought up to date.
func (c *Controller) bringSoon(r *record) {
	if delay := time.Duration(len(r.slots)) * collectPerSlot; delay >= collectFrom {
		c.queue.AddAfter(r.key(), delay)
		return
	}
	c.queue.Add(r.key())
}

func reservationOf(ref ledger.SlotRef) types.NamespacedName {
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
}

// devicesChanged queues the objects whose slots keep devices on a node: some devices may be lost, or be back. c.mu is
// held.
func (c *Controller) devicesChanged(node string) {
	on, _ := c.Ledger.NodeSnapshot(node)
	for i := range on.Slots {
		if r := c.records[reservationOf(on.Slots[i].Ref)]; r != nil && on.Slots[i].Devices != nil {
			c.bringSoon(r)
		}
	}
}

// nodeGone fails the reservations that hold capacity on a node that was deleted. c.mu is held.
func (c *Controller) nodeGone(node string) {
	for _, r := range c.records {
		if r.status.Phase == v1alpha1.ReservationAvailable && r.keepsOn(node) {
			c.fail(r, cause{reasonNodeGone, fmt.Sprintf("node %s was deleted", node)})
		}
	}
}

// fail gives an available reservation up: its slots are released, and once that
// has been read back it is Failed. c.mu is held.
func (c *Controller) fail(r *record, why cause) {
	if r.failure == nil {
		r.failure = &why
		c.release(r)
		c.queue.Add(r.key())
	}
}

// lostTrack is called when more has happened than the ledger remembers. How slots ended is then concluded from the
// present state. c.mu is held.
func (c *Controller) lostTrack() {
	if len(c.records) > 0 { // at a server's start there are none
		c.Log.Warn("more happened in the ledger than it remembers: how reservations ended is concluded from what is left")
	}
	for key, r := range c.records {
		if r.status.Phase == v1alpha1.ReservationAvailable {
			c.loseNodesOf(r)
		}
		c.queue.Add(key)
	}
	c.Retry()
}

// likelyEnd concludes how a slot ended.
func (c *Controller) likelyEnd(r *record, i int) ending {
	if !r.deadline.IsZero() && !r.deadline.After(c.now()) {
		return ending{how: ledger.SlotExpired}
	}
	if spec := &r.rsv.Spec.Slots[i]; spec.Pod != nil {
		pod, ok := c.Pods.Pod(r.rsv.Namespace, spec.Pod.Name)
		if ok && pod.Bound() && pod.Node == r.status.Slots[i].NodeName {
			return ending{ledger.SlotConsumed, pod.Ref}
		}
	}
	return ending{how: ledger.SlotReleased}
}

// loseNodesOf fails a reservation whose nodes are not what they were. c.mu is held.
func (c *Controller) loseNodesOf(r *record) {
	for i := range r.slots {
		if !r.slots[i].held {
			continue // its status may be one that somebody else wrote, with any number of slots
		}
		status := &r.status.Slots[i]
		node, ok := c.Nodes.Node(status.NodeName)
		switch {
		case !ok:
			c.fail(r, cause{reasonNodeGone, fmt.Sprintf("node %s is gone", status.NodeName)})
		case status.NodeUID != "" && status.NodeUID != node.UID:
			c.fail(r, cause{reasonNodeGone, fmt.Sprintf("node %s was deleted, and another one has its name", status.NodeName)})
		default:
			status.NodeUID = node.UID
		}
	}
}
