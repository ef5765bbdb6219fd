package rest

import (
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// dump serves GET /debug/ledger.
func (a *API) dump(q *query) (any, error) {
	if err := q.allOnly(); err != nil {
		return nil, err
	}
	answer := a.Dump()
	return &answer, nil
}

// Dump returns the whole account of this server, even where another server decides.
func (a *API) Dump() reserver.DumpAnswer {
	answer := a.about()
	snapshot := a.ledger.Snapshot()
	answer.Account = a.newSnapshot(snapshot.Revision, snapshot.Nodes, snapshot.Allocations, snapshot.Slots)
	return answer
}

// newSnapshot is an account, or part of it, as the wire has it.
func (a *API) newSnapshot(
	revision uint64, nodes []ledger.NodeView, allocations []ledger.AllocationView, slots []ledger.SlotView,
) reserver.WatchSnapshot {
	s := reserver.WatchSnapshot{
		Instance: a.instance, Revision: revision, Nodes: make([]reserver.Node, 0, len(nodes)),
		Allocations: make([]reserver.Allocation, 0, len(allocations)), Slots: make([]reserver.NodeSlot, 0, len(slots)),
	}
	for i := range nodes {
		s.Nodes = append(s.Nodes, newNode(&nodes[i]))
	}
	for i := range allocations {
		s.Allocations = append(s.Allocations, newAllocation(a.ledger.Table(), &allocations[i]))
	}
	for i := range slots {
		s.Slots = append(s.Slots, newNodeSlot(a.ledger.Table(), a.clock, &slots[i]))
	}
	return s
}
