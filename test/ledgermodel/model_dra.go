package ledgermodel

import (
	"math"
	"math/big"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// offered is what a node has of a resource, by count or by DRA.
func (m *Model) offered(node string, name v1.ResourceName) int64 {
	n := m.nodes[node]
	switch {
	case n != nil && n.allocatable[name] > 0:
		return n.allocatable[name]
	case m.leftToDRA(node, name):
		return math.MaxInt64
	}
	given := new(big.Int)
	for _, c := range m.allocations {
		if c.node == node && m.isByDRA(c.request, name) {
			given.Add(given, big.NewInt(m.asks(c.request)[name]))
		}
	}
	for _, h := range m.slots {
		if h.Node == node && m.isByDRA(h.Request, name) {
			asked := m.asked(h, name)
			given.Add(given, larger(m.kept(h, name), asked)).Sub(given, asked)
		}
	}
	return count(given)
}

// leftToDRA says whether DRA gives devices for a resource on a node, of which it offers none by count and no pod seen
// there has any.
func (m *Model) leftToDRA(node string, name v1.ResourceName) bool {
	n := m.nodes[node]
	if n == nil || !n.exists || n.allocatable[name] > 0 || !n.dra[name] {
		return false
	}
	return !slices.ContainsFunc(m.allocations, func(c *modelAllocation) bool {
		return c.node == node && !c.inMemory() && c.version > 0 && m.asks(c.request)[name] > 0 && !m.isByDRA(c.request, name)
	})
}

func (m *Model) isByDRA(r *resources.Request, name v1.ResourceName) bool {
	return slices.ContainsFunc(r.ByDRA, func(c resources.Column) bool { return m.table.Name(c) == name })
}

// besidesDRA is what a pod asks for that DRA neither has given it nor gives on its node.
func (m *Model) besidesDRA(c *modelAllocation) *resources.Request {
	besides := *c.request
	besides.Amounts = nil
	for _, a := range c.request.Amounts {
		name := m.table.Name(a.Column)
		counted := m.nodes[c.node] == nil || m.nodes[c.node].allocatable[name] > 0
		if counted || !m.isByDRA(c.request, name) && !m.leftToDRA(c.node, name) {
			besides.Amounts = append(besides.Amounts, a)
		}
	}
	besides.ByDRA = nil
	return &besides
}

// withoutDRA is what becomes of a verdict where DRA gives nothing more.
func (m *Model) withoutDRA(v ledger.Verdict, node string, p *ledger.Placement) ledger.Verdict {
	for _, a := range p.Request.Amounts {
		if v.Reason == ledger.Fits && p.NoDRA && m.leftToDRA(node, m.table.Name(a.Column)) &&
			!slices.Contains(p.Request.ByDRA, a.Column) {
			v = ledger.Verdict{Reason: ledger.InsufficientResource, Column: a.Column}
		}
	}
	return v
}

// byDRAOnly says which resource nodes leave to DRA that slots for pods would have to keep; the pods of a choice ask for
// the same.
func (m *Model) byDRAOnly(x *ledger.Exchange) string {
	for _, choice := range x.Keep {
		if len(choice.Slots) == 0 {
			continue
		}
		for _, a := range choice.Slots[0].Request.Amounts {
			name := m.table.Name(a.Column)
			for node := range m.nodes {
				if m.leftToDRA(node, name) {
					return "what nodes leave to DRA, " + string(name) + ", is kept for no pod"
				}
			}
		}
	}
	return ""
}
