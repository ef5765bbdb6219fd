package ledgertest

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Mirror is what a watcher of the ledger knows: everything it has it learned
// from events.
type Mirror struct {
	table    *resources.Table
	revision uint64
	nodes    map[string]ledger.Event // the last NodeUpdated of each node that exists
	devices  map[string][]devices.Device
	claims   map[ledger.PodRef]ledger.ClaimView
	holds    map[ledger.HoldRef]ledger.HoldView
	inMemory map[ledger.PodRef]ledger.HoldView // the slots in memory
}

// NewMirror returns a mirror of an empty ledger at a revision.
func NewMirror(table *resources.Table, revision uint64) *Mirror {
	return &Mirror{
		table: table, revision: revision,
		nodes: map[string]ledger.Event{}, claims: map[ledger.PodRef]ledger.ClaimView{},
		holds: map[ledger.HoldRef]ledger.HoldView{}, devices: map[string][]devices.Device{},
		inMemory: map[ledger.PodRef]ledger.HoldView{},
	}
}

// Apply takes in the next event. It returns an error when one is missing, or
// speaks of something the mirror has never heard of.
func (m *Mirror) Apply(e *ledger.Event) error {
	if e.Revision != m.revision+1 {
		return fmt.Errorf("event %d follows %d", e.Revision, m.revision)
	}
	m.revision = e.Revision
	if e.Type.OfHold() && e.Hold.Name == "" {
		return m.applyInMemory(e)
	}
	_, known := m.claims[e.Pod]
	if _, ok := m.holds[e.Hold]; e.Hold.Name != "" && !ok && e.Type != ledger.HoldPlaced {
		return fmt.Errorf("event %d: %s of the unknown hold %s", e.Revision, e.Type, e.Hold)
	}
	switch e.Type {
	case ledger.NodeUpdated:
		m.nodes[e.Node] = *e
	case ledger.NodeRemoved:
		delete(m.nodes, e.Node)
	case ledger.DevicesUpdated:
		if m.devices[e.Node] = e.NodeDevices; len(e.NodeDevices) == 0 {
			delete(m.devices, e.Node)
		}
	case ledger.ClaimIdentified:
		delete(m.claims, ledger.PodRef{Namespace: e.Pod.Namespace, Name: e.Pod.Name})
		m.put(e)
	case ledger.ClaimBinding, ledger.ClaimBound:
		if !known {
			m.redeem(e)
		}
		m.put(e)
	case ledger.ClaimMoved, ledger.ClaimResized, ledger.ClaimLinked:
		if !known {
			return fmt.Errorf("event %d: %s of the unknown claim %s", e.Revision, e.Type, e.Pod)
		}
		m.put(e)
	case ledger.ClaimBindFailed, ledger.ClaimRemoved:
		if !known {
			return fmt.Errorf("event %d: %s of the unknown claim %s", e.Revision, e.Type, e.Pod)
		}
		delete(m.claims, e.Pod)
	case ledger.HoldPlaced:
		m.holds[e.Hold] = ledger.HoldView{Overdue: e.Overdue, Given: e.Given, Hold: ledger.Hold{
			Ref: e.Hold, Node: e.Node, Request: e.Request, Policy: e.Policy, Scheduler: e.Scheduler,
			Priority: e.Priority, Preemptible: e.Preemptible, Pod: e.Pod, Deadline: e.Deadline,
			Devices: e.Devices,
		}}
	case ledger.HoldConsumed, ledger.HoldReleased, ledger.HoldExpired, ledger.HoldPreempted:
		m.endHold(e.Hold)
	default:
		return fmt.Errorf("event %d has the unknown type %q", e.Revision, e.Type)
	}
	return nil
}

// endHold ends a slot of a reservation. Who used it stays.
func (m *Mirror) endHold(ref ledger.HoldRef) {
	delete(m.holds, ref)
	for pod, c := range m.claims {
		if c.Hold == ref {
			c.Hold = ledger.HoldRef{}
			m.claims[pod] = c
		}
	}
	for pod, h := range m.inMemory {
		if h.Within == ref {
			h.Within = ledger.HoldRef{}
			m.inMemory[pod] = h
		}
	}
}

// applyInMemory takes in an event about a slot in memory.
func (m *Mirror) applyInMemory(e *ledger.Event) error {
	_, known := m.inMemory[e.Pod]
	switch {
	case e.Type == ledger.HoldPlaced, e.Type == ledger.HoldIdentified:
		if e.Type == ledger.HoldIdentified {
			delete(m.inMemory, ledger.PodRef{Namespace: e.Pod.Namespace, Name: e.Pod.Name})
		}
		m.inMemory[e.Pod] = ledger.HoldView{Within: e.Within, Given: e.Given, Rest: e.Request, Hold: ledger.Hold{
			Node: e.Node, Request: e.Request, Policy: e.Policy, Scheduler: e.Scheduler, Priority: e.Priority,
			Pod: e.Pod, Deadline: e.Deadline, Devices: e.Devices,
		}}
	case !known:
		return fmt.Errorf("event %d: %s of nothing in memory for %s", e.Revision, e.Type, e.Pod)
	default:
		delete(m.inMemory, e.Pod)
	}
	return nil
}

// redeem ends the slot in memory that has turned into a claim on its node.
func (m *Mirror) redeem(e *ledger.Event) {
	if h, ok := m.inMemory[e.Pod]; ok && h.Node == e.Node {
		delete(m.inMemory, e.Pod)
	}
}

func (m *Mirror) put(e *ledger.Event) {
	m.claims[e.Pod] = ledger.ClaimView{
		Pod: e.Pod, Node: e.Node, State: e.State, Scheduler: e.Scheduler,
		Priority: e.Priority, Request: e.Request, Hold: e.Hold, Given: e.Given,
	}
}

// Snapshot returns what the mirror holds in the form of the ledger's own.
func (m *Mirror) Snapshot() ledger.Snapshot {
	s := ledger.Snapshot{Revision: m.revision, Claims: []ledger.ClaimView{}, Nodes: []ledger.NodeView{}, Holds: []ledger.HoldView{}}
	names := slices.Concat(slices.Collect(maps.Keys(m.nodes)), slices.Collect(maps.Keys(m.devices)))
	for _, c := range m.claims {
		s.Claims = append(s.Claims, c)
		names = append(names, c.Node)
	}
	for _, h := range m.holds {
		s.Holds = append(s.Holds, m.hold(h))
		names = append(names, h.Node)
	}
	for _, h := range m.inMemory {
		s.Holds = append(s.Holds, h)
		names = append(names, h.Node)
	}
	slices.SortFunc(s.Holds, compareHolds)
	slices.SortFunc(s.Claims, func(a, b ledger.ClaimView) int { return comparePods(a.Pod, b.Pod) })
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		s.Nodes = append(s.Nodes, m.node(name))
	}
	return s
}

// hold returns a hold with the pods that use it.
func (m *Mirror) hold(h ledger.HoldView) ledger.HoldView {
	view := h
	view.Rest = h.Request
	asked := map[resources.Column]int64{}
	for _, c := range m.claims {
		if c.Hold != h.Ref {
			continue
		}
		view.Consumers = append(view.Consumers, ledger.Consumer{Pod: c.Pod, State: c.State})
		for _, a := range c.Request.Amounts {
			asked[a.Column], _ = resources.Add(asked[a.Column], a.Value)
		}
	}
	for _, g := range m.inMemory {
		if g.Within != h.Ref {
			continue
		}
		view.Consumers = append(view.Consumers, ledger.Consumer{Pod: g.Pod})
		for _, a := range g.Request.Amounts {
			asked[a.Column], _ = resources.Add(asked[a.Column], a.Value)
		}
	}
	if len(view.Consumers) > 0 {
		view.Rest = &resources.Request{}
		for _, a := range h.Request.Amounts {
			if left := a.Value - asked[a.Column]; left > 0 {
				view.Rest.Amounts = append(view.Rest.Amounts, resources.Amount{Column: a.Column, Value: left})
			}
		}
	}
	slices.SortFunc(view.Consumers, func(a, b ledger.Consumer) int { return comparePods(a.Pod, b.Pod) })
	return view
}

func (m *Mirror) node(name string) ledger.NodeView {
	updated, exists := m.nodes[name]
	view := ledger.NodeView{Name: name, Exists: exists, UID: updated.NodeUID, Unschedulable: updated.Unschedulable}
	amounts := map[v1.ResourceName]*ledger.AmountView{}
	of := func(c resources.Column) *ledger.AmountView {
		resource := m.table.Name(c)
		if amounts[resource] == nil {
			amounts[resource] = &ledger.AmountView{Resource: resource}
		}
		return amounts[resource]
	}
	for _, a := range updated.Allocatable {
		of(a.Column).Allocatable = a.Value
	}
	for _, c := range m.claims {
		if c.Node != name {
			continue
		}
		view.Claims++
		for _, a := range c.Request.Amounts {
			if view := of(a.Column); c.State == ledger.Bound {
				view.Bound, _ = resources.Add(view.Bound, a.Value)
			} else {
				view.Reserved, _ = resources.Add(view.Reserved, a.Value)
			}
		}
	}
	for _, g := range m.inMemory {
		if g.Node != name {
			continue
		}
		view.InMemory++
		for _, a := range g.Request.Amounts {
			of(a.Column).Reserved, _ = resources.Add(of(a.Column).Reserved, a.Value)
		}
	}
	for _, h := range m.holds {
		if h.Node != name {
			continue
		}
		for _, a := range h.Request.Amounts {
			of(a.Column)
		}
		for _, a := range m.hold(h).Rest.Amounts {
			view := of(a.Column)
			view.Reserved, _ = resources.Add(view.Reserved, a.Value)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(amounts)) {
		a := amounts[resource]
		used, _ := resources.Add(a.Bound, a.Reserved)
		a.Free = resources.Sub(a.Allocatable, used)
		view.Amounts = append(view.Amounts, *a)
	}
	view.Devices = m.deviceViews(name)
	return view
}

// CheckRoom returns an error where a node holds more than it offers, or two
// claims on it, or a claim and a hold it does not use, share a host port.
func (m *Mirror) CheckRoom(name string) error {
	view := m.node(name)
	if view.Overcommitted() {
		return fmt.Errorf("node is overcommitted: %+v", view)
	}
	type use struct {
		port resources.HostPort
		pod  ledger.PodRef
		hold ledger.HoldRef
	}
	var uses []use
	for _, h := range m.holds {
		for _, p := range h.Request.Ports {
			if h.Node == name {
				uses = append(uses, use{port: p, hold: h.Ref})
			}
		}
	}
	users := slices.Collect(maps.Values(m.claims))
	for _, g := range m.inMemory {
		users = append(users, ledger.ClaimView{Pod: g.Pod, Node: g.Node, Request: g.Request, Hold: g.Within})
	}
	for _, c := range users {
		if c.Node != name {
			continue
		}
		for _, p := range c.Request.Ports {
			for _, u := range uses {
				own := u.pod == c.Pod || (u.pod.Name == "" && u.hold == c.Hold)
				if !own && u.port.CollidesWith(p) {
					return fmt.Errorf("%+v and %s share %+v on node %s", u, c.Pod, p, name)
				}
			}
			uses = append(uses, use{port: p, pod: c.Pod})
		}
	}
	return nil
}

// deviceViews returns a node's devices and who has them.
func (m *Mirror) deviceViews(node string) []ledger.DeviceView {
	model := NewModel(m.table)
	model.devices = m.devices
	for _, c := range m.claims {
		model.claims = append(model.claims, &modelClaim{pod: c.Pod, node: c.Node, state: c.State, request: c.Request, given: c.Given})
	}
	for _, g := range m.inMemory {
		model.claims = append(model.claims, &modelClaim{pod: g.Pod, node: g.Node, request: g.Request, given: g.Given})
	}
	for _, h := range m.holds {
		model.holds = append(model.holds, &modelHold{Hold: h.Hold, given: h.Given})
	}
	return model.deviceViews(node)
}
