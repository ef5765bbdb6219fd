package ledgertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Mirror is what a watcher of the ledger knows: everything it has it learned from events.
type Mirror struct {
	table       *resources.Table
	revision    uint64
	nodes       map[string]ledger.NodeObservation
	devices     map[string]*ledger.Event
	allocations []ledger.AllocationView
	slots       []ledger.SlotView
	expired     uint64 // slots in memory that ended at their deadline
}

// NewMirror returns a mirror of an empty ledger at a revision.
func NewMirror(table *resources.Table, revision uint64) *Mirror {
	return &Mirror{
		table: table, revision: revision, nodes: map[string]ledger.NodeObservation{}, devices: map[string]*ledger.Event{},
	}
}

// Apply takes in the next event. It returns an error when one is missing, or
// speaks of something the mirror has never heard of.
func (m *Mirror) Apply(e *ledger.Event) error {
	if e.Revision != m.revision+1 {
		return fmt.Errorf("event %d follows %d", e.Revision, m.revision)
	}
	m.revision = e.Revision
	known := true
	switch {
	case e.Type == ledger.NodeUpdated, e.Type == ledger.NodeLabeled:
		m.nodes[e.Node] = ledger.NodeObservation{
			Name: e.Node, UID: e.NodeUID, Allocatable: e.Allocatable, DRA: e.DRA, Unschedulable: e.Unschedulable,
			Labels: e.Labels,
		}
	case e.Type == ledger.NodeRemoved:
		_, known = m.nodes[e.Node]
		delete(m.nodes, e.Node)
	case e.Type == ledger.DevicesUpdated:
		m.devices[e.Node] = e
	case !e.Type.OfSlot():
		known = m.allocation(e)
	case e.Slot.Name == "":
		known = m.inMemory(e)
	default:
		known = m.slot(e)
	}
	if !known {
		return fmt.Errorf("event %d: %s of something unknown: %s, pod %s", e.Revision, e.Type, e.Slot, e.Pod)
	}
	return nil
}

// allocation takes in an event about an allocation. A slot in memory on its node turns into it.
func (m *Mirror) allocation(e *ledger.Event) (known bool) {
	before := e.Pod
	if e.Type == ledger.AllocationIdentified {
		before.UID = ""
	}
	count := len(m.allocations)
	m.allocations = slices.DeleteFunc(m.allocations, func(a ledger.AllocationView) bool { return a.Pod == before })
	known = len(m.allocations) < count
	switch e.Type {
	case ledger.AllocationBindFailed, ledger.AllocationRemoved:
		return known
	case ledger.AllocationBinding, ledger.AllocationBound:
		if !known {
			m.dropInMemory(e.Pod, e.Node)
		}
		known = true
	}
	m.allocations = append(m.allocations, ledger.AllocationView{
		Pod: e.Pod, Node: e.Node, State: e.State, Scheduler: e.Scheduler, Priority: e.Priority, Request: e.Request,
		Slot: e.Slot, Given: e.Given,
	})
	return known
}

// dropInMemory forgets the slot in memory of a pod, on a node or on any, and reports whether there was one.
func (m *Mirror) dropInMemory(pod ledger.PodRef, node string) bool {
	count := len(m.slots)
	m.slots = slices.DeleteFunc(m.slots, func(h ledger.SlotView) bool {
		return h.InMemory() && h.Pod == pod && (node == "" || h.Node == node)
	})
	return len(m.slots) < count
}

// inMemory takes in an event about a slot in memory. One that a plan made and gave the UID
// of its pod is told of with that UID from the start.
func (m *Mirror) inMemory(e *ledger.Event) (known bool) {
	known = m.dropInMemory(e.Pod, "")
	if e.Type == ledger.SlotIdentified {
		before := e.Pod
		before.UID = ""
		known = m.dropInMemory(before, "") || known
	}
	if e.Type == ledger.SlotExpired {
		m.expired++
	}
	if e.Type == ledger.SlotPlaced || e.Type == ledger.SlotIdentified {
		m.slots = append(m.slots, slotOf(e))
	}
	return known || e.Type == ledger.SlotPlaced
}

// slot takes in an event about a slot of a reservation. When it ends, who used it stays.
func (m *Mirror) slot(e *ledger.Event) (known bool) {
	count := len(m.slots)
	m.slots = slices.DeleteFunc(m.slots, func(h ledger.SlotView) bool { return h.Ref == e.Slot })
	if e.Type == ledger.SlotPlaced {
		m.slots = append(m.slots, slotOf(e))
		return true
	}
	for k := range m.allocations {
		if m.allocations[k].Slot == e.Slot {
			m.allocations[k].Slot = ledger.SlotRef{}
		}
	}
	for k := range m.slots {
		if m.slots[k].Within == e.Slot {
			m.slots[k].Within = ledger.SlotRef{}
		}
	}
	return len(m.slots) < count
}

func slotOf(e *ledger.Event) ledger.SlotView {
	view := ledger.SlotView{Within: e.Within, Given: e.Given, Overdue: e.Overdue, Slot: ledger.Slot{
		Ref: e.Slot, Node: e.Node, Request: e.Request, Policy: e.Policy, Scheduler: e.Scheduler, Priority: e.Priority,
		Preemptible: e.Preemptible, Pod: e.Pod, Deadline: e.Deadline, Devices: e.Devices, Movable: e.Movable,
		AvailableAt: e.AvailableAt,
	}}
	if view.InMemory() {
		view.Policy = ledger.Once
	}
	return view
}

// Agrees returns an error where a ledger says something else than its events told, or counts something else from it.
func (m *Mirror) Agrees(l ledger.Reader) error {
	s := l.Snapshot()
	if s.Revision != m.revision {
		return fmt.Errorf("the ledger is at revision %d, its events end at %d", s.Revision, m.revision)
	}
	if err := sameLists(s.Allocations, m.allocations, announcedAllocation); err != nil {
		return err
	}
	if err := sameLists(s.Slots, m.slots, announcedSlot); err != nil {
		return err
	}
	for i := range s.Nodes {
		if err := m.checkNode(&s.Nodes[i]); err != nil {
			return fmt.Errorf("node %s: %w", s.Nodes[i].Name, err)
		}
	}
	for name := range m.nodes {
		if !slices.ContainsFunc(s.Nodes, func(n ledger.NodeView) bool { return n.Name == name && n.Exists }) {
			return fmt.Errorf("node %s is not there any more, and no event told", name)
		}
	}
	return nil
}

// sameLists compares two lists in any order, by what is told of each.
func sameLists[T any](got, want []T, announced func(*T) string) error {
	texts := func(list []T) (all []string) {
		for i := range list {
			all = append(all, announced(&list[i]))
		}
		slices.Sort(all)
		return all
	}
	if g, w := texts(got), texts(want); !slices.Equal(g, w) {
		return fmt.Errorf("the ledger has\n%s\nits events told\n%s", strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
	return nil
}

// announcedAllocation leaves out what events do not tell: a toleration that a pod got later changes no account.
func announcedAllocation(a *ledger.AllocationView) string {
	told := *a
	told.Request, told.Growing = nil, false
	return fmt.Sprintf("%+v %s", told, amounts(a.Request))
}

// announcedSlot leaves out what is counted from what uses the slot, and what only the cluster knows.
func announcedSlot(h *ledger.SlotView) string {
	told := *h
	told.Request, told.Rest, told.Consumers, told.Lost, told.Devices = nil, nil, nil, nil, nil
	return fmt.Sprintf("%+v %s %+v", told, amounts(h.Request), h.Devices)
}

func amounts(r *resources.Request) string {
	return fmt.Sprintf("%v %v %v", r.Amounts, r.Ports, r.ByDRA)
}

// checkNode compares what the ledger says of a node with what its events told of it, and counts anew what is used
// there.
func (m *Mirror) checkNode(view *ledger.NodeView) error {
	node, exists := m.nodes[view.Name]
	if view.Exists != exists || view.UID != node.UID || view.Unschedulable != node.Unschedulable ||
		!maps.Equal(view.Labels, node.Labels) {
		return fmt.Errorf("is %+v, its events told %+v (there: %v)", view, node, exists)
	}
	var told []string
	if e := m.devices[view.Name]; e != nil {
		for k, d := range e.NodeDevices { // of two that are the same device one counts
			same := func(o devices.Device) bool { return o.Resource == d.Resource && o.ID == d.ID }
			if slices.IndexFunc(e.NodeDevices, same) == k {
				told = append(told, fmt.Sprintf("%+v", d))
			}
		}
	}
	slices.Sort(told)
	var has []string
	for k := range view.Devices {
		has = append(has, fmt.Sprintf("%+v", view.Devices[k].Device))
	}
	if slices.Sort(has); !slices.Equal(has, told) {
		return fmt.Errorf("has the devices %v, its events told %v", has, told)
	}
	used := m.used(view.Name)
	for _, a := range view.Amounts {
		column, _ := m.table.Lookup(a.Resource)
		offered := (&resources.Request{Amounts: node.Allocatable}).Value(column)
		if sum, _ := resources.Add(a.Bound, a.Reserved); sum != used[column] || a.Allocatable != offered {
			return fmt.Errorf("offers %d of %s and %d are used; the ledger says %+v", offered, a.Resource, used[column], a)
		}
	}
	return nil
}

// used counts what is used on a node by the formula of the ledger's package comment.
func (m *Mirror) used(node string) map[resources.Column]int64 {
	used, asked := map[resources.Column]int64{}, map[ledger.SlotRef]map[resources.Column]int64{}
	count := func(sums map[resources.Column]int64, r *resources.Request) {
		for _, a := range r.Amounts {
			sums[a.Column], _ = resources.Add(sums[a.Column], a.Value)
		}
	}
	use := func(slot ledger.SlotRef, on string, r *resources.Request) {
		switch {
		case on != node:
		case slot.Name == "":
			count(used, r)
		default:
			if asked[slot] == nil {
				asked[slot] = map[resources.Column]int64{}
			}
			count(asked[slot], r)
		}
	}
	for k := range m.allocations {
		use(m.allocations[k].Slot, m.allocations[k].Node, m.allocations[k].Request)
	}
	for k := range m.slots {
		if m.slots[k].InMemory() {
			use(m.slots[k].Within, m.slots[k].Node, m.slots[k].Request)
		}
	}
	for k := range m.slots {
		h := &m.slots[k]
		if h.InMemory() || h.Node != node {
			continue
		}
		for c := range m.table.Len() {
			column := resources.Column(c)
			most := max(h.Request.Value(column), asked[h.Ref][column])
			used[column], _ = resources.Add(used[column], most)
		}
	}
	return used
}

// CheckCapacity returns an error where a node holds more than it offers, or two
// allocations on it, or an allocation and a slot it does not use, share a host port.
func (m *Mirror) CheckCapacity(name string) error {
	node := m.nodes[name]
	for column, used := range m.used(name) {
		if offered := (&resources.Request{Amounts: node.Allocatable}).Value(column); used > offered {
			return fmt.Errorf("node %s offers %d of %s, and %d are used", name, offered, m.table.Name(column), used)
		}
	}
	if both := collisions(name, m.allocations, m.slots); len(both) > 0 {
		return fmt.Errorf("on node %s these share a host port: %v", name, both)
	}
	return nil
}

// collisions are the pairs of allocations and slots on a node that share a host port, but for a slot and its users.
func collisions(node string, allocations []ledger.AllocationView, slots []ledger.SlotView) (both []string) {
	type user struct {
		name       string
		is, within ledger.SlotRef
		ports      []resources.HostPort
	}
	var users []user
	for k := range allocations {
		if a := &allocations[k]; a.Node == node && len(a.Request.Ports) > 0 {
			users = append(users, user{name: a.Pod.String(), within: a.Slot, ports: a.Request.Ports})
		}
	}
	for k := range slots {
		if h := &slots[k]; h.Node == node && len(h.Request.Ports) > 0 {
			name := h.Pod.String() + h.Ref.String()
			users = append(users, user{name: name, is: h.Ref, within: h.Within, ports: h.Request.Ports})
		}
	}
	for k, a := range users {
		for _, b := range users[k+1:] {
			uses := a.is.Name != "" && a.is == b.within || b.is.Name != "" && b.is == a.within
			if !uses && collide(a.ports, b.ports) {
				both = append(both, a.name+" and "+b.name)
			}
		}
	}
	return both
}

// collide leaves out terms of anti-affinity, which count on nodes with a hostname only.
func collide(a, b []resources.HostPort) bool {
	return slices.ContainsFunc(a, func(p resources.HostPort) bool {
		return !p.IsTerm() && slices.ContainsFunc(b, p.CollidesWith)
	})
}
