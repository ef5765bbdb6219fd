package ledgertest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Mirror is what a watcher of the ledger knows: everything it has it learned
// from events.
type Mirror struct {
	table    *resources.Table
	revision uint64
	nodes    map[string]ledger.Event // the last NodeUpdated of each node that exists
	claims   map[ledger.PodRef]ledger.ClaimView
}

// NewMirror returns a mirror of an empty ledger at a revision.
func NewMirror(table *resources.Table, revision uint64) *Mirror {
	return &Mirror{
		table: table, revision: revision,
		nodes: map[string]ledger.Event{}, claims: map[ledger.PodRef]ledger.ClaimView{},
	}
}

// Apply takes in the next event. It returns an error when one is missing, or
// speaks of something the mirror has never heard of.
func (m *Mirror) Apply(e *ledger.Event) error {
	if e.Revision != m.revision+1 {
		return fmt.Errorf("event %d follows %d", e.Revision, m.revision)
	}
	m.revision = e.Revision
	_, known := m.claims[e.Pod]
	switch e.Type {
	case ledger.NodeUpdated:
		m.nodes[e.Node] = *e
	case ledger.NodeRemoved:
		delete(m.nodes, e.Node)
	case ledger.ClaimIdentified:
		delete(m.claims, ledger.PodRef{Namespace: e.Pod.Namespace, Name: e.Pod.Name})
		m.put(e)
	case ledger.ClaimReserved, ledger.ClaimBinding, ledger.ClaimBound:
		m.put(e)
	case ledger.ClaimMoved, ledger.ClaimResized:
		if !known {
			return fmt.Errorf("event %d: %s of the unknown claim %s", e.Revision, e.Type, e.Pod)
		}
		m.put(e)
	case ledger.ClaimExpired, ledger.ClaimUnreserved, ledger.ClaimBindFailed, ledger.ClaimRemoved:
		if !known {
			return fmt.Errorf("event %d: %s of the unknown claim %s", e.Revision, e.Type, e.Pod)
		}
		delete(m.claims, e.Pod)
	default:
		return fmt.Errorf("event %d has the unknown type %q", e.Revision, e.Type)
	}
	return nil
}

func (m *Mirror) put(e *ledger.Event) {
	m.claims[e.Pod] = ledger.ClaimView{
		Pod: e.Pod, Node: e.Node, State: e.State, Scheduler: e.Scheduler,
		Priority: e.Priority, Request: e.Request, Deadline: e.Deadline,
	}
}

// Snapshot returns what the mirror holds in the form of the ledger's own.
func (m *Mirror) Snapshot() ledger.Snapshot {
	s := ledger.Snapshot{Revision: m.revision, Claims: []ledger.ClaimView{}, Nodes: []ledger.NodeView{}, Holds: []ledger.HoldView{}}
	names := slices.Collect(maps.Keys(m.nodes))
	for _, c := range m.claims {
		s.Claims = append(s.Claims, c)
		names = append(names, c.Node)
	}
	slices.SortFunc(s.Claims, func(a, b ledger.ClaimView) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		s.Nodes = append(s.Nodes, m.node(name))
	}
	return s
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
	for _, resource := range slices.Sorted(maps.Keys(amounts)) {
		a := amounts[resource]
		used, _ := resources.Add(a.Bound, a.Reserved)
		a.Free = resources.Sub(a.Allocatable, used)
		view.Amounts = append(view.Amounts, *a)
	}
	return view
}

// CheckRoom returns an error where a node holds more than it offers, or two
// claims on it share a host port.
func (m *Mirror) CheckRoom(name string) error {
	view := m.node(name)
	if view.Overcommitted() {
		return fmt.Errorf("node is overcommitted: %+v", view)
	}
	type use struct {
		port resources.HostPort
		pod  ledger.PodRef
	}
	var uses []use
	for _, c := range m.claims {
		if c.Node != name {
			continue
		}
		for _, p := range c.Request.Ports {
			for _, u := range uses {
				if u.pod != c.Pod && u.port.CollidesWith(p) {
					return fmt.Errorf("%s and %s share %+v on node %s", u.pod, c.Pod, p, name)
				}
			}
			uses = append(uses, use{port: p, pod: c.Pod})
		}
	}
	return nil
}
