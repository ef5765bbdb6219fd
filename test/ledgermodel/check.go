package ledgermodel

import (
	"fmt"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Check finds what is wrong inside a ledger. Only the ledger's own tests can look there.
type Check func(l *ledger.Ledger) error

// CheckInvariants counts anew what is used on each node, as the naive model does, and
// returns an error where a ledger says otherwise.
func CheckInvariants(l ledger.Reader) error {
	s, m := l.Snapshot(), NewModel(l.Table())
	for i := range s.Nodes {
		m.addNode(&s.Nodes[i])
	}
	for i := range s.Allocations {
		c := &s.Allocations[i]
		m.allocations = append(m.allocations, &modelAllocation{
			pod: c.Pod, node: c.Node, state: c.State, request: c.Request, uses: c.Slot, given: c.Given,
		})
	}
	for i := range s.Slots {
		h := &s.Slots[i]
		if h.InMemory() {
			m.allocations = append(m.allocations, &modelAllocation{
				pod: h.Pod, node: h.Node, request: h.Request, uses: h.Within,
				given: h.Given,
			})
		} else {
			m.slots = append(m.slots, &modelSlot{Slot: h.Slot, given: h.Given, overdue: h.Overdue})
		}
	}
	for i, want := range m.NodeViews() {
		if i >= len(s.Nodes) || !reflect.DeepEqual(s.Nodes[i], want) {
			return fmt.Errorf("the ledger's nodes are %+v; counted anew, there is %+v", s.Nodes[min(i, len(s.Nodes)):], want)
		}
	}
	for _, c := range m.allocations {
		if h := m.slot(c.uses); h == nil && c.uses.Name != "" || h != nil && h.Node != c.node {
			return fmt.Errorf("%s on node %s uses %s, which is not there", c.pod, c.node, c.uses)
		}
	}
	once := func(h *modelSlot) bool { return h.Policy == ledger.Once && len(m.users(h.Ref)) > 1 }
	if i := slices.IndexFunc(m.slots, once); i >= 0 {
		return fmt.Errorf("slot %s is used more than once", m.slots[i].Ref)
	}
	return nil
}

// addNode adds a node as readers of a ledger see it.
func (m *Model) addNode(view *ledger.NodeView) {
	for _, d := range view.Devices {
		m.devices[view.Name] = append(m.devices[view.Name], d.Device)
	}
	if !view.Exists {
		return
	}
	n := &modelNode{
		exists: true, cordoned: view.Unschedulable, uid: view.UID, labels: view.Labels,
		allocatable: map[v1.ResourceName]int64{},
	}
	for _, a := range view.Amounts {
		if a.Allocatable != 0 {
			n.allocatable[a.Resource] = a.Allocatable
		}
	}
	n.dra = m.unlisted(view)
	m.nodes[view.Name] = n
}

// unlisted are the extended resources that the view of a node does not have: what is used of them is left to DRA.
func (m *Model) unlisted(view *ledger.NodeView) map[v1.ResourceName]bool {
	left := map[v1.ResourceName]bool{}
	for c := range m.table.Len() {
		if resources.Column(c) > resources.Pods {
			left[m.table.Name(resources.Column(c))] = true
		}
	}
	for _, a := range view.Amounts {
		delete(left, a.Resource)
	}
	return left
}
