package mirror

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// apply takes in an event that changes the account.
func (m *Mirror) apply(e *reserver.Event) error {
	switch {
	case e.Snapshot != nil:
		return m.takeSnapshot(e)
	case e.Node != nil:
		m.applyNode(e.Node)
		return nil
	case e.Allocation != nil:
		return m.applyAllocation(e.Allocation)
	case e.Slot != nil:
		return m.applySlot(e.Slot)
	default:
		return nil
	}
}

// takeSnapshot collects the parts of a snapshot and takes it in when it is whole.
// Until then the replica is what it was.
func (m *Mirror) takeSnapshot(e *reserver.Event) error {
	if e.First {
		m.parts = nil
	}
	m.parts = append(m.parts, e.Snapshot)
	if e.Snapshot.More {
		return nil
	}
	parts := m.parts
	m.parts = nil
	return m.replace(parts)
}

// replace makes the replica what a snapshot says. What is there and right is left as
// it is; what is not in the snapshot goes, allocations before the slots they use. Slots
// are placed before the allocations that use them.
func (m *Mirror) replace(parts []*reserver.WatchSnapshot) error {
	var errs []error
	nodes, slots, allocations := map[string]bool{}, map[slotKey]bool{}, map[ledger.PodRef]bool{}
	for _, part := range parts {
		for i := range part.Nodes {
			nodes[part.Nodes[i].Name] = part.Nodes[i].Exists
		}
		for i := range part.Allocations {
			allocations[podOf(&part.Allocations[i])] = true
		}
		for i := range part.Slots {
			slots[keyOf(refOf(&part.Slots[i]), slotPod(&part.Slots[i]))] = true
		}
	}
	m.prune(nodes, slots, allocations)
	for _, part := range parts {
		for i := range part.Nodes {
			n := offered(&part.Nodes[i])
			if part.Nodes[i].Exists {
				m.observeNode(n)
			}
			m.observeDevices(n)
		}
	}
	for _, inMemory := range []bool{false, true} { // which are part of the others
		for _, part := range parts {
			for i := range part.Slots {
				if s := &part.Slots[i]; inMemory == (s.Reservation == "") {
					errs = append(errs, m.copySlot(s))
				}
			}
		}
	}
	for _, part := range parts {
		for i := range part.Allocations {
			errs = append(errs, m.copyAllocation(&part.Allocations[i]))
		}
	}
	return errors.Join(errs...)
}

// prune ends what a snapshot does not have.
func (m *Mirror) prune(nodes map[string]bool, slots map[slotKey]bool, allocations map[ledger.PodRef]bool) {
	now := m.ledger.Snapshot()
	for i := range now.Allocations {
		if pod := now.Allocations[i].Pod; !allocations[pod] {
			// What has become of the pod is not known: it may be pending yet.
			m.ledger.EndAllocation(pod, ledger.AllocationBindFailed)
		}
	}
	for i := range now.Slots {
		if h := &now.Slots[i]; !slots[keyOf(h.Ref, h.Pod)] {
			m.ledger.EndSlot(h.Ref, h.Pod, ledger.SlotReleased)
		}
	}
	for i := range now.Nodes {
		name := now.Nodes[i].Name
		exists, listed := nodes[name]
		if !exists {
			m.ledger.RemoveNode(name)
		}
		if !listed {
			m.ledger.ObserveDevices(name, nil)
		}
	}
}

func (m *Mirror) applyNode(e *reserver.WatchNode) {
	switch ledger.EventType(e.Type) {
	case ledger.NodeRemoved:
		m.ledger.RemoveNode(e.Node.Name)
	case ledger.DevicesUpdated:
		m.observeDevices(&e.Node)
	default:
		m.observeNode(&e.Node)
	}
}

func (m *Mirror) observeNode(n *reserver.WatchedNode) {
	m.ledger.ObserveNode(ledger.NodeObservation{
		Name: n.Name, UID: types.UID(n.UID), Unschedulable: n.Unschedulable, Labels: n.Labels,
		Allocatable: amounts(n.Allocatable, m.ledger.Table().Intern),
	})
}

func (m *Mirror) observeDevices(n *reserver.WatchedNode) {
	list := make([]devices.Device, len(n.Devices))
	for i := range list {
		list[i] = devices.Device(n.Devices[i])
	}
	m.ledger.ObserveDevices(n.Name, list)
}

func (m *Mirror) applyAllocation(e *reserver.WatchAllocation) error {
	switch why := ledger.EventType(e.Type); why {
	case ledger.AllocationBindFailed, ledger.AllocationRemoved:
		m.ledger.EndAllocation(podOf(&e.Allocation), why)
		return nil
	case ledger.AllocationIdentified:
		m.ledger.IdentifyAllocation(podOf(&e.Allocation))
		return m.copyAllocation(&e.Allocation)
	default: // after all others the allocation is what the event says
		return m.copyAllocation(&e.Allocation)
	}
}

func (m *Mirror) copyAllocation(c *reserver.Allocation) error {
	view, err := allocation(m.ledger.Table(), c)
	if err != nil {
		return err
	}
	m.ledger.CopyAllocation(view)
	return nil
}

func (m *Mirror) applySlot(e *reserver.WatchSlot) error {
	switch why := ledger.EventType(e.Type); why {
	case ledger.SlotIdentified:
		m.ledger.IdentifyAllocation(slotPod(&e.Slot))
		return m.copySlot(&e.Slot)
	case ledger.SlotPlaced:
		return m.copySlot(&e.Slot)
	case ledger.SlotConsumed, ledger.SlotReleased, ledger.SlotExpired, ledger.SlotPreempted:
		m.ledger.EndSlot(refOf(&e.Slot), slotPod(&e.Slot), why)
		return nil
	default:
		return fmt.Errorf("slot event of the unknown type %q", e.Type)
	}
}

func (m *Mirror) copySlot(s *reserver.NodeSlot) error {
	h, err := slot(m.ledger.Table(), s)
	if err != nil {
		return err
	}
	m.ledger.CopySlot(h)
	return nil
}
