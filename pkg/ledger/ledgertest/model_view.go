package ledgertest

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
			dst = append(dst, ledger.Verdict{Reason: ledger.ClaimedElsewhere})
		}
	}
	return dst
}

// has reports whether there is an account of a node: it exists, or is used.
func (m *Model) has(node string) bool {
	return m.nodes[node] != nil || len(m.devices[node]) > 0 || slices.ContainsFunc(m.claims, func(c *modelClaim) bool { return c.node == node }) ||
		slices.ContainsFunc(m.holds, func(h *modelHold) bool { return h.Node == node })
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
	for _, c := range m.claims {
		names = append(names, c.node)
	}
	for _, h := range m.holds {
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
		view.Exists, view.Unschedulable, view.UID = true, n.cordoned, n.uid
		maps.Copy(offered, n.allocatable)
	}
	listed := maps.Clone(offered)
	for _, c := range m.claims {
		if c.node == name {
			if c.inMemory() {
				view.InMemory++
			} else {
				view.Claims++
			}
			maps.Copy(listed, m.asks(c.request))
		}
	}
	for _, h := range m.holds {
		if h.Node == name {
			maps.Copy(listed, m.asks(h.Request))
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(listed)) {
		view.Amounts = append(view.Amounts, ledger.AmountView{
			Resource: resource, Allocatable: offered[resource],
			Bound: m.sum(name, resource, true), Reserved: m.sum(name, resource, false), Free: m.free(name, resource),
		})
	}
	return view
}

// sum adds up what bound pods use of a resource, or all others and what holds
// keep beyond what their pods ask for.
func (m *Model) sum(node string, name v1.ResourceName, bound bool) int64 {
	total := new(big.Int)
	for _, c := range m.claims {
		if c.node == node && (c.state == ledger.Bound) == bound {
			total.Add(total, big.NewInt(m.asks(c.request)[name]))
		}
	}
	for _, h := range m.holds {
		if h.Node == node && !bound {
			asked := m.asked(h, name)
			total.Add(total, larger(m.kept(h, name), asked)).Sub(total, asked)
		}
	}
	return count(total)
}

// ClaimViews returns all claims as readers of the ledger see them.
func (m *Model) ClaimViews() []ledger.ClaimView {
	views := []ledger.ClaimView{}
	for _, c := range m.claims {
		if !c.inMemory() {
			views = append(views, c.view())
		}
	}
	slices.SortFunc(views, func(a, b ledger.ClaimView) int { return comparePods(a.Pod, b.Pod) })
	return views
}

func (c *modelClaim) view() ledger.ClaimView {
	return ledger.ClaimView{
		Pod: c.pod, Node: c.node, State: c.state, Scheduler: c.scheduler,
		Priority: c.priority, Request: c.request, Hold: c.uses, Given: c.given,
	}
}

// Stats returns the counts behind the metrics.
func (m *Model) Stats() ledger.Stats {
	s := ledger.Stats{InMemoryExpired: m.memoryExpired, Holds: len(m.holds)}
	for _, c := range m.claims {
		if c.inMemory() {
			s.InMemory++
			continue
		}
		s.Claims[c.state]++
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
	for _, c := range m.claims {
		if !c.deadline.IsZero() && (!ok || c.deadline.Before(soonest)) {
			soonest, ok = c.deadline, true
		}
	}
	for _, h := range m.holds {
		if !h.Deadline.IsZero() && !h.overdue && (!ok || h.Deadline.Before(soonest)) {
			soonest, ok = h.Deadline, true
		}
	}
	return soonest, ok
}
