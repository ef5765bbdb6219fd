package ledgertest

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
	if e.Hold.Name != "" && m.known.hold(e.Hold) == nil && e.Type != ledger.HoldPlaced {
		return fmt.Errorf("event %d: %s of the unknown hold %s", e.Revision, e.Type, e.Hold)
	}
	known := true
	switch {
	case e.Type == ledger.NodeUpdated:
		m.known.ObserveNode(ledger.NodeObservation{
			Name: e.Node, UID: e.NodeUID, Allocatable: e.Allocatable, Unschedulable: e.Unschedulable,
		})
	case e.Type == ledger.NodeRemoved:
		delete(m.known.nodes, e.Node)
	case e.Type == ledger.DevicesUpdated:
		if m.known.devices[e.Node] = e.NodeDevices; len(e.NodeDevices) == 0 {
			delete(m.known.devices, e.Node)
		}
	case !e.Type.OfHold():
		known = m.claim(e)
	case e.Hold.Name == "":
		known = m.inMemory(e)
	default:
		m.hold(e)
	}
	if !known {
		return fmt.Errorf("event %d: %s of something unknown for %s", e.Revision, e.Type, e.Pod)
	}
	return nil
}

// drop forgets what a pod has, and reports whether there was something.
func (m *Mirror) drop(pod ledger.PodRef, is func(*modelClaim) bool) bool {
	before := len(m.known.claims)
	m.known.claims = slices.DeleteFunc(m.known.claims, func(c *modelClaim) bool { return c.pod == pod && is(c) })
	return len(m.known.claims) < before
}

func (m *Mirror) put(e *ledger.Event, uses ledger.HoldRef) {
	m.known.claims = append(m.known.claims, &modelClaim{
		pod: e.Pod, node: e.Node, state: e.State, scheduler: e.Scheduler, priority: e.Priority, request: e.Request,
		deadline: e.Deadline, uses: uses, devices: e.Devices, given: e.Given,
	})
}

// claim takes in an event about a claim. A slot in memory on its node turns into it.
func (m *Mirror) claim(e *ledger.Event) (known bool) {
	before := e.Pod
	if e.Type == ledger.ClaimIdentified {
		before.UID = ""
	}
	known = m.drop(before, func(c *modelClaim) bool { return !c.inMemory() })
	switch e.Type {
	case ledger.ClaimBindFailed, ledger.ClaimRemoved:
		return known
	case ledger.ClaimBinding, ledger.ClaimBound:
		if !known {
			m.drop(e.Pod, func(c *modelClaim) bool { return c.node == e.Node })
		}
		known = true
	}
	m.put(e, e.Hold)
	return known
}

// inMemory takes in an event about a slot in memory. One that a plan made and gave the UID
// of its pod is told of with that UID from the start.
func (m *Mirror) inMemory(e *ledger.Event) (known bool) {
	known = m.drop(e.Pod, (*modelClaim).inMemory)
	if e.Type == ledger.HoldIdentified {
		before := e.Pod
		before.UID = ""
		known = m.drop(before, (*modelClaim).inMemory) || known
	}
	if e.Type == ledger.HoldPlaced || e.Type == ledger.HoldIdentified {
		m.put(e, e.Within)
	}
	return known || e.Type == ledger.HoldPlaced
}

// hold takes in an event about a slot of a reservation. When it ends, who used it stays.
func (m *Mirror) hold(e *ledger.Event) {
	m.known.holds = slices.DeleteFunc(m.known.holds, func(h *modelHold) bool { return h.Ref == e.Hold })
	if e.Type == ledger.HoldPlaced {
		m.known.holds = append(m.known.holds, &modelHold{overdue: e.Overdue, given: e.Given, Hold: ledger.Hold{
			Ref: e.Hold, Node: e.Node, Request: e.Request, Policy: e.Policy, Scheduler: e.Scheduler,
			Priority: e.Priority, Preemptible: e.Preemptible, Pod: e.Pod, Deadline: e.Deadline, Devices: e.Devices,
		}})
		return
	}
	for _, c := range m.known.users(e.Hold) {
		c.uses = ledger.HoldRef{}
	}
}

// Snapshot returns what the mirror holds in the form of the ledger's own.
func (m *Mirror) Snapshot() ledger.Snapshot {
	return ledger.Snapshot{
		Revision: m.revision, Nodes: m.known.NodeViews(), Claims: m.known.ClaimViews(), Holds: m.known.HoldViews(),
	}
}

// CheckRoom returns an error where a node holds more than it offers, or two
// claims on it, or a claim and a hold it does not use, share a host port.
func (m *Mirror) CheckRoom(name string) error {
	if view := m.known.nodeView(name); view.Overcommitted() {
		return fmt.Errorf("node is overcommitted: %+v", view)
	}
	for _, c := range m.known.claims {
		if c.node != name {
			continue
		}
		for _, p := range c.request.Ports {
			for _, u := range m.known.portUsers(name, p, m.known.hold(c.uses)) {
				if u.Pod != c.pod {
					return fmt.Errorf("%+v and %s share %+v on node %s", u, c.pod, p, name)
				}
			}
		}
	}
	return nil
}
