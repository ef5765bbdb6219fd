package ledgermodel

import (
	"fmt"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Mirror is what a watcher of the ledger knows: everything it has it learned
// from events. It keeps that as facts of a naive model, which counts from them.
type Mirror struct {
	revision uint64
	known    *Model
}

// NewMirror returns a mirror of an empty ledger at a revision.
func NewMirror(table *resources.Table, revision uint64) *Mirror {
	return &Mirror{revision: revision, known: NewModel(table)}
}

// Apply takes in the next event. It returns an error when one is missing, or
// speaks of something the mirror has never heard of.
func (m *Mirror) Apply(e *ledger.Event) error {
	if e.Revision != m.revision+1 {
		return fmt.Errorf("event %d follows %d", e.Revision, m.revision)
	}
	m.revision = e.Revision
	if e.Slot.Name != "" && m.known.slot(e.Slot) == nil && e.Type != ledger.SlotPlaced {
		return fmt.Errorf("event %d: %s of the unknown slot %s", e.Revision, e.Type, e.Slot)
	}
	known := true
	switch {
	case e.Type == ledger.NodeUpdated, e.Type == ledger.NodeLabeled:
		m.known.ObserveNode(ledger.NodeObservation{
			Name: e.Node, UID: e.NodeUID, Allocatable: e.Allocatable, DRA: e.DRA, Unschedulable: e.Unschedulable,
			Labels: e.Labels,
		})
	case e.Type == ledger.NodeRemoved:
		delete(m.known.nodes, e.Node)
	case e.Type == ledger.DevicesUpdated:
		if m.known.devices[e.Node] = e.NodeDevices; len(e.NodeDevices) == 0 {
			delete(m.known.devices, e.Node)
		}
	case !e.Type.OfSlot():
		known = m.allocation(e)
	case e.Slot.Name == "":
		known = m.inMemory(e)
	default:
		m.slot(e)
	}
	if !known {
		return fmt.Errorf("event %d: %s of something unknown for %s", e.Revision, e.Type, e.Pod)
	}
	return nil
}

// drop forgets what a pod has, and reports whether there was something.
func (m *Mirror) drop(pod ledger.PodRef, is func(*modelAllocation) bool) bool {
	before := len(m.known.allocations)
	m.known.allocations = slices.DeleteFunc(m.known.allocations,
		func(c *modelAllocation) bool { return c.pod == pod && is(c) })
	return len(m.known.allocations) < before
}

func (m *Mirror) put(e *ledger.Event, uses ledger.SlotRef) {
	m.known.allocations = append(m.known.allocations, &modelAllocation{
		pod: e.Pod, node: e.Node, state: e.State, scheduler: e.Scheduler, priority: e.Priority, request: e.Request,
		deadline: e.Deadline, uses: uses, devices: e.Devices, given: e.Given, movable: e.Movable,
	})
}

// allocation takes in an event about an allocation. A slot in memory on its node turns into it.
func (m *Mirror) allocation(e *ledger.Event) (known bool) {
	before := e.Pod
	if e.Type == ledger.AllocationIdentified {
		before.UID = ""
	}
	known = m.drop(before, func(c *modelAllocation) bool { return !c.inMemory() })
	switch e.Type {
	case ledger.AllocationBindFailed, ledger.AllocationRemoved:
		return known
	case ledger.AllocationBinding, ledger.AllocationBound:
		if !known {
			m.drop(e.Pod, func(c *modelAllocation) bool { return c.node == e.Node })
		}
		known = true
	}
	m.put(e, e.Slot)
	return known
}

// inMemory takes in an event about a slot in memory. One that a plan made and gave the UID
// of its pod is told of with that UID from the start.
func (m *Mirror) inMemory(e *ledger.Event) (known bool) {
	known = m.drop(e.Pod, (*modelAllocation).inMemory)
	if e.Type == ledger.SlotIdentified {
		before := e.Pod
		before.UID = ""
		known = m.drop(before, (*modelAllocation).inMemory) || known
	}
	if e.Type == ledger.SlotPlaced || e.Type == ledger.SlotIdentified {
		m.put(e, e.Within)
	}
	return known || e.Type == ledger.SlotPlaced
}

// slot takes in an event about a slot of a reservation. When it ends, who used it stays.
func (m *Mirror) slot(e *ledger.Event) {
	m.known.slots = slices.DeleteFunc(m.known.slots, func(h *modelSlot) bool { return h.Ref == e.Slot })
	if e.Type == ledger.SlotPlaced {
		m.known.slots = append(m.known.slots, &modelSlot{overdue: e.Overdue, given: e.Given, Slot: ledger.Slot{
			Ref: e.Slot, Node: e.Node, Request: e.Request, Policy: e.Policy, Scheduler: e.Scheduler,
			Priority: e.Priority, Preemptible: e.Preemptible, Pod: e.Pod, Deadline: e.Deadline, Devices: e.Devices,
		}})
		return
	}
	for _, c := range m.known.users(e.Slot) {
		c.uses = ledger.SlotRef{}
	}
}

// Snapshot returns what the mirror holds in the form of the ledger's own.
func (m *Mirror) Snapshot() ledger.Snapshot {
	return ledger.Snapshot{
		Revision: m.revision, Nodes: m.known.NodeViews(), Allocations: m.known.AllocationViews(), Slots: m.known.SlotViews(),
	}
}

// CheckCapacity returns an error where a node holds more than it offers, or two
// allocations on it, or an allocation and a slot it does not use, share a host port.
func (m *Mirror) CheckCapacity(name string) error {
	if view := m.known.nodeView(name); view.Overcommitted() {
		return fmt.Errorf("node is overcommitted: %+v", view)
	}
	for _, c := range m.known.allocations {
		if c.node != name {
			continue
		}
		for _, p := range c.request.Ports {
			for _, u := range m.known.portUsers(name, p, m.known.slot(c.uses)) {
				if u.Pod != c.pod {
					return fmt.Errorf("%+v and %s share %+v on node %s", u, c.pod, p, name)
				}
			}
		}
	}
	return nil
}
