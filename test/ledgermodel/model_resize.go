package ledgermodel

import (
	"maps"
	"slices"
	"time"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Resize decides whether a pod may ask for more.
func (m *Model) Resize(pod ledger.PodRef, asked *resources.Request, version uint64,
	now time.Time,
) (bool, *ledger.Rejection) {
	m.Expire(now)
	c := m.find(pod)
	if c == nil || c.inMemory() {
		return false, nil
	}
	if rejection := m.refuseResize(c, asked); rejection != nil {
		return true, rejection
	}
	if version < c.version {
		return true, nil
	}
	if c.granted == nil {
		c.seen, c.granted = c.request, asked
	}
	c.granted, c.resizes = both(c.granted, asked), max(c.resizes, version)
	m.become(c, both(c.seen, c.granted))
	return true, nil
}

// FitResize says what Resize would refuse by.
func (m *Model) FitResize(pod ledger.PodRef, asked *resources.Request) (bool, *ledger.Rejection) {
	c := m.find(pod)
	if c == nil || c.inMemory() {
		return false, nil
	}
	return true, m.refuseResize(c, asked)
}

// refuseResize asks for the difference alone.
func (m *Model) refuseResize(c *modelAllocation, asked *resources.Request) *ledger.Rejection {
	p := &ledger.Placement{
		Pod: c.pod, Node: c.node, Caller: c.caller, Priority: c.priority,
		Request: &resources.Request{Unlisted: asked.Unlisted},
	}
	has := m.asks(c.request)
	for _, a := range asked.Amounts {
		if name := m.table.Name(a.Column); a.Value > has[name] {
			p.Request.Amounts = append(p.Request.Amounts, resources.Amount{Column: a.Column, Value: a.Value - has[name]})
		}
	}
	if len(p.Request.Amounts) == 0 && len(p.Request.Unlisted) == 0 {
		return nil
	}
	v := m.verdict(c.node, p.Request, true, m.slot(c.uses), rankOf(p, nil))
	if v.Reason != ledger.NodeUnknown {
		if over := m.over(ownersOf(p), p.Request, m.slot(c.uses), nil); over.Reason != ledger.Fits {
			v = over
		}
	}
	if v.Reason == ledger.Fits {
		return nil
	}
	return m.refuse(p, v, nil)
}

// SettleResize forgets what was granted and will not be written.
func (m *Model) SettleResize(pod ledger.PodRef, version uint64) bool {
	c := m.find(pod)
	if c == nil || c.inMemory() || c.granted == nil || c.resizes > version {
		return false
	}
	seen := c.seen
	c.seen, c.granted, c.resizes = nil, nil, 0
	m.become(c, seen)
	return true
}

func (m *Model) become(c *modelAllocation, request *resources.Request) {
	if sameRequest(c.request, request) {
		return
	}
	c.request = request
	m.tell(ledger.AllocationResized, c)
}

// see has a pod ask for what it is seen to.
func (c *modelAllocation) see(o *ledger.PodObservation) {
	if c.granted == nil || c.node != o.Node || o.ResourceVersion > c.resizes {
		c.request, c.seen, c.granted, c.resizes = o.Request, nil, nil, 0
		return
	}
	c.seen = o.Request
	c.request = both(c.seen, c.granted)
}

// both is the larger of two requests, resource by resource.
func both(a, b *resources.Request) *resources.Request {
	most := map[resources.Column]int64{}
	for _, amount := range slices.Concat(a.Amounts, b.Amounts) {
		most[amount.Column] = max(most[amount.Column], amount.Value)
	}
	sum := *a
	sum.Amounts = nil
	for _, column := range slices.Sorted(maps.Keys(most)) {
		sum.Amounts = append(sum.Amounts, resources.Amount{Column: column, Value: most[column]})
	}
	return &sum
}
