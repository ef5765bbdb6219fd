package ledgermodel

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// shown is a slot without what is for the ledger alone.
func (h *modelSlot) shown() ledger.Slot {
	shown := h.Slot
	shown.UID, shown.Caller, shown.Unborn = "", "", false
	return shown
}

// HeldBack returns the first node on which a pod that fits none would fit without
// the slots there, and those slots that keep most of what it lacks.
func (m *Model) HeldBack(p *ledger.Placement, nodes []string) (on string, keepers []ledger.SlotRef) {
	_, gone := m.gone[p.Pod.UID]
	if m.find(p.Pod) != nil || (gone && p.Pod.UID != "") {
		return "", nil
	}
	for _, node := range nodes {
		_, v := m.choose(p, node)
		if v.Reason == ledger.Fits {
			return "", nil
		}
		without := m.only(anyAllocation, func(h *modelSlot) bool { return h.Node != node })
		if on != "" || v.Reason == ledger.DeviceClaimInUse || v.Reason.OfLimit() ||
			without.fits(node, p, nil).Reason != ledger.Fits {
			continue
		}
		on = node
		if v.Reason == ledger.HostPortConflict || v.Reason == ledger.AntiAffinity {
			for _, port := range p.Request.Ports {
				for _, user := range m.portUsers(node, port, nil) {
					keepers = append(keepers, user.Slot)
				}
			}
			continue
		}
		most, name := new(big.Int), m.table.Name(v.Column)
		for _, h := range m.slots {
			if h.Node != node {
				continue
			}
			rest := m.keptDevices(h, p)
			if v.Reason != ledger.InsufficientDevices {
				rest = new(big.Int).Sub(larger(m.kept(h, name), m.asked(h, name)), m.asked(h, name))
			}
			if order := rest.Cmp(most); order > 0 {
				most, keepers = rest, []ledger.SlotRef{h.Ref}
			} else if order == 0 && rest.Sign() > 0 {
				keepers = append(keepers, h.Ref)
			}
		}
	}
	return on, keepers
}

// SlotViews returns all slots as readers of the ledger see them.
func (m *Model) SlotViews() []ledger.SlotView {
	views := []ledger.SlotView{}
	for _, h := range m.slots {
		view := ledger.SlotView{Slot: h.shown(), Rest: h.Request, Given: h.given, Overdue: h.overdue}
		view.Lost = m.lost(&view)
		for _, c := range m.users(h.Ref) {
			view.Consumers = append(view.Consumers, ledger.Consumer{Pod: c.pod, State: c.state})
			view.Rest = &resources.Request{Unlisted: h.Request.Unlisted}
		}
		slices.SortFunc(view.Consumers, func(a, b ledger.Consumer) int { return comparePods(a.Pod, b.Pod) })
		if len(view.Consumers) > 0 {
			for _, p := range h.Request.Ports {
				if !slices.ContainsFunc(m.users(h.Ref), func(c *modelAllocation) bool {
					return slices.ContainsFunc(c.request.Ports,
						p.CollidesWith)
				}) {
					view.Rest.Ports = append(view.Rest.Ports, p)
				}
			}
			for _, a := range h.Request.Amounts {
				name := m.table.Name(a.Column)
				if left := a.Value - count(m.asked(h, name)); left > 0 {
					view.Rest.Amounts = append(view.Rest.Amounts, resources.Amount{Column: a.Column, Value: left})
				}
			}
		}
		views = append(views, view)
	}
	for _, c := range m.allocations {
		if c.inMemory() {
			views = append(views, c.slot())
		}
	}
	slices.SortFunc(views, compareSlots)
	return views
}

func compareRefs(a, b ledger.SlotRef) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Slot, b.Slot))
}

func compareSlots(a, b ledger.SlotView) int {
	return cmp.Or(compareRefs(a.Ref, b.Ref), comparePods(a.Pod, b.Pod))
}

// slot is what is kept in memory as readers of the ledger see it.
func (c *modelAllocation) slot() ledger.SlotView {
	return ledger.SlotView{Within: c.uses, Rest: c.request, Given: c.given, Slot: ledger.Slot{
		Node: c.node, Request: c.request, Policy: ledger.Once, Scheduler: c.scheduler, Priority: c.priority,
		Pod: c.pod, Devices: c.devices, Movable: c.movable, Deadline: c.deadline,
	}}
}
