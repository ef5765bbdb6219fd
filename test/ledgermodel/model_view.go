package ledgermodel

import (
	"maps"
	"math/big"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// AppendFit answers for several nodes whether a pod could go there.
func (m *Model) AppendFit(dst []ledger.Verdict, p *ledger.Placement, nodes []string) []ledger.Verdict {
	own := m.find(p.Pod)
	_, gone := m.gone[p.Pod.UID]
	for _, node := range nodes {
		switch {
		case own != nil && own.movable && own.node != node:
			dst = m.without(own).AppendFit(dst, own.named(p), []string{node})
		case own == nil && gone && p.Pod.UID != "":
			dst = append(dst, ledger.Verdict{Reason: ledger.PodGone})
		case own == nil:
			_, v := m.choose(p, node)
			if p.Preempt && v.Reason != ledger.Fits && v.Reason != ledger.DeviceClaimInUse {
				if _, ok := m.preemption(p, node); ok {
					v = ledger.Verdict{}
				}
			}
			dst = append(dst, v)
		case own.node == node:
			dst = append(dst, m.verdictInPlace(own, p))
		case m.nodes[node] == nil:
			dst = append(dst, ledger.Verdict{Reason: ledger.NodeUnknown})
		default:
			dst = append(dst, ledger.Verdict{Reason: ledger.AllocatedElsewhere})
		}
	}
	return dst
}

// has reports whether there is an account of a node: it exists, or is used.
func (m *Model) has(node string) bool {
	return m.nodes[node] != nil || len(m.devices[node]) > 0 || slices.ContainsFunc(m.allocations,
		func(c *modelAllocation) bool { return c.node == node }) ||
		slices.ContainsFunc(m.slots, func(h *modelSlot) bool { return h.Node == node })
}

// FitAll answers for every node that exists.
func (m *Model) FitAll(p *ledger.Placement) map[string]ledger.Verdict {
	all := map[string]ledger.Verdict{}
	for name := range m.nodes {
		all[name] = m.fits(name, p, nil)
	}
	return all
}

// NodeViews returns all nodes as readers of the ledger see them.
func (m *Model) NodeViews() []ledger.NodeView {
	names := slices.Collect(maps.Keys(m.nodes))
	names = append(names, slices.Collect(maps.Keys(m.devices))...)
	for _, c := range m.allocations {
		names = append(names, c.node)
	}
	for _, h := range m.slots {
		names = append(names, h.Node)
	}
	slices.Sort(names)
	views := []ledger.NodeView{}
	for _, name := range slices.Compact(names) {
		views = append(views, m.nodeView(name))
	}
	return views
}

func (m *Model) nodeView(name string) ledger.NodeView {
	view := ledger.NodeView{Name: name, Devices: m.deviceViews(name)}
	offered := map[v1.ResourceName]int64{}
	if n := m.nodes[name]; n != nil {
		view.Exists, view.Unschedulable, view.UID, view.Labels = true, n.cordoned, n.uid, n.labels
		maps.Copy(offered, n.allocatable)
	}
	listed := maps.Clone(offered)
	for _, c := range m.allocations {
		if c.node == name {
			if !c.inMemory() {
				view.Allocations++
			}
			maps.Copy(listed, m.asks(c.request))
		}
	}
	for _, h := range m.slots {
		if h.Node == name {
			maps.Copy(listed, m.asks(h.Request))
		}
	}
	maps.DeleteFunc(listed, func(resource v1.ResourceName, _ int64) bool { return m.leftToDRA(name, resource) })
	for _, resource := range slices.Sorted(maps.Keys(listed)) {
		view.Amounts = append(view.Amounts, ledger.AmountView{
			Resource: resource, Allocatable: offered[resource],
			Bound: m.sum(name, resource, true), Reserved: m.sum(name, resource, false), Free: m.free(name, resource),
		})
	}
	return view
}

// sum adds up what bound pods use of a resource, or all others and what slots
// keep beyond what their pods ask for.
func (m *Model) sum(node string, name v1.ResourceName, bound bool) int64 {
	total := new(big.Int)
	for _, c := range m.allocations {
		if c.node == node && (c.state == ledger.Bound) == bound {
			total.Add(total, big.NewInt(m.asks(c.request)[name]))
		}
	}
	for _, h := range m.slots {
		if h.Node == node && !bound {
			asked := m.asked(h, name)
			total.Add(total, larger(m.kept(h, name), asked)).Sub(total, asked)
		}
	}
	return count(total)
}

// AllocationViews returns all allocations as readers of the ledger see them.
func (m *Model) AllocationViews() []ledger.AllocationView {
	views := []ledger.AllocationView{}
	for _, c := range m.allocations {
		if !c.inMemory() {
			views = append(views, c.view())
		}
	}
	slices.SortFunc(views, func(a, b ledger.AllocationView) int { return comparePods(a.Pod, b.Pod) })
	return views
}

func (c *modelAllocation) view() ledger.AllocationView {
	return ledger.AllocationView{
		Pod: c.pod, Node: c.node, State: c.state, Scheduler: c.scheduler,
		Priority: c.priority, Request: c.request, Slot: c.uses, Given: c.given, Growing: c.granted != nil,
	}
}

// Stats returns the counts behind the metrics.
func (m *Model) Stats() ledger.Stats {
	s := ledger.Stats{InMemoryExpired: m.memoryExpired, Slots: len(m.slots)}
	for _, c := range m.allocations {
		if c.inMemory() {
			s.InMemory++
			continue
		}
		s.Allocations[c.state]++
	}
	for _, view := range m.NodeViews() {
		if !view.Exists {
			continue
		}
		s.Nodes++
		if slices.ContainsFunc(view.Amounts, func(a ledger.AmountView) bool { return a.Free < 0 }) {
			s.OvercommittedNodes++
		}
	}
	return s
}

// NextDeadline returns the soonest deadline.
func (m *Model) NextDeadline() (soonest time.Time, ok bool) {
	for _, c := range m.allocations {
		if !c.deadline.IsZero() && (!ok || c.deadline.Before(soonest)) {
			soonest, ok = c.deadline, true
		}
	}
	for _, h := range m.slots {
		if !h.Deadline.IsZero() && !h.overdue && (!ok || h.Deadline.Before(soonest)) {
			soonest, ok = h.Deadline, true
		}
	}
	for _, n := range m.nominations {
		if !ok || n.until.Before(soonest) {
			soonest, ok = n.until, true
		}
	}
	return soonest, ok
}
