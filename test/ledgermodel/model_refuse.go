package ledgermodel

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// refuse explains a refusal. Which holders it lists is checked apart, because
// the ledger may choose among equals.
func (m *Model) refuse(p *ledger.Placement, v ledger.Verdict, own *modelAllocation) *ledger.Rejection {
	r := &ledger.Rejection{Pod: p.Pod, Node: p.Node, Reason: v.Reason}
	if own != nil {
		r.AllocatedOn = own.node
	}
	switch {
	case v.Reason.OfLimit():
		who := ownersOf(p)
		if own != nil {
			who[ledger.OfCaller] = own.caller
		}
		m.only(func(c *modelAllocation) bool { return c != own }, anySlot).refuseLimit(r, who, p.Request, v)
	case v.Reason == ledger.InsufficientResource && v.Unlisted:
		r.Resource, r.Requested, r.Unlisted = string(p.Request.Unlisted[0].Name), p.Request.Unlisted[0].Value, true
	case v.Reason == ledger.InsufficientResource:
		others := m.only(func(c *modelAllocation) bool { return c != own }, anySlot)
		name := m.table.Name(v.Column)
		r.Resource = string(name)
		r.Requested = m.asks(p.Request)[name]
		r.Free = others.free(p.Node, name)
		if free := others.freeFor(rankOf(p, own), p.Node, name); free < r.Free {
			r.Free = free
			r.Detail = "the rest is kept for a pod of a higher priority, for which others make way"
		}
		if r.Free >= r.Requested && m.nodes[p.Node].allocatable[name] == 0 {
			r.Free = 0
		}
		if others.leftToDRA(p.Node, name) {
			r.Detail = "the node leaves it to DRA, which keeps none for later; the status of a pod says what DRA gave it"
		}
		r.Holders = others.holders(p.Node, name)
		slices.SortStableFunc(r.Holders, func(a, b ledger.Holder) int { return cmp.Compare(b.Amount, a.Amount) })
	case v.Reason == ledger.HostPortConflict, v.Reason == ledger.AntiAffinity:
		m.refusePort(r, p.Request, own)
	case v.Reason == ledger.InsufficientDevices, v.Reason == ledger.DeviceClaimInUse,
		v.Reason == ledger.DeviceClaimUnusable:
		if m.has(p.Node) {
			m.refuseDevices(r, p, own)
		}
	}
	return r
}

// holders returns who uses some of a resource on a node: pods what they ask for,
// slots what they keep beyond that.
func (m *Model) holders(node string, name v1.ResourceName) []ledger.Holder {
	var holders []ledger.Holder
	for _, c := range m.allocations {
		if amount := m.asks(c.request)[name]; c.node == node && amount > 0 {
			holders = append(holders, holderOf(c, amount))
		}
	}
	for _, h := range m.slots {
		kept, asked := m.kept(h, name), m.asked(h, name)
		if h.Node == node && kept.Cmp(asked) > 0 {
			holders = append(holders, keeperOf(h, kept.Sub(kept, asked).Int64()))
		}
	}
	return holders
}

func (m *Model) refusePort(r *ledger.Rejection, request *resources.Request, own *modelAllocation) {
	others, by := m, (*modelSlot)(nil)
	if own != nil {
		others, by = m.only(func(c *modelAllocation) bool { return c != own }, anySlot), m.slot(own.uses)
	}
	for _, p := range request.Ports {
		users := others.portUsers(r.Node, p, by)
		if len(users) == 0 || !m.counts(r.Node, p) {
			continue
		}
		if r.Resource = p.IP; !p.IsTerm() {
			r.Resource = "hostPort/" + string(p.Protocol) + "/" + itoa(int64(p.Port))
		}
		r.Requested = 1
		r.Holders = users
		return
	}
}

func holderOf(c *modelAllocation, amount int64) ledger.Holder {
	return ledger.Holder{Pod: c.pod, Scheduler: c.scheduler, State: c.state, Amount: amount}
}

func keeperOf(h *modelSlot, amount int64) ledger.Holder {
	return ledger.Holder{Slot: h.Ref, Scheduler: h.Scheduler, Amount: amount}
}
