package ledgertest

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// AppendFit answers for several nodes whether a pod could go there.
func (m *Model) AppendFit(dst []ledger.Verdict, pod ledger.PodRef, r *resources.Request, nodes []string) []ledger.Verdict {
	own := m.find(pod)
	_, gone := m.gone[pod.UID]
	for _, node := range nodes {
		switch {
		case own == nil && gone && pod.UID != "":
			dst = append(dst, ledger.Verdict{Reason: ledger.PodGone})
		case own == nil:
			dst = append(dst, m.verdict(node, r, false, everything))
		case own.node == node:
			dst = append(dst, m.verdictInPlace(own, r))
		case !m.has(node):
			dst = append(dst, ledger.Verdict{Reason: ledger.NodeUnknown})
		default:
			dst = append(dst, ledger.Verdict{Reason: ledger.ClaimedElsewhere})
		}
	}
	return dst
}

// has reports whether there is an account of a node: it exists, or is used.
func (m *Model) has(node string) bool {
	return m.nodes[node] != nil || slices.ContainsFunc(m.claims, func(c *modelClaim) bool { return c.node == node })
}

// FitWithout answers whether a pod fits once some pods are gone.
func (m *Model) FitWithout(pod ledger.PodRef, r *resources.Request, node string, victims []types.UID) ledger.Verdict {
	if m.nodes[node] == nil {
		return ledger.Verdict{Reason: ledger.NodeUnknown}
	}
	own := m.find(pod)
	if own != nil && own.node != node {
		return ledger.Verdict{Reason: ledger.ClaimedElsewhere}
	} else if own != nil {
		return ledger.Verdict{}
	}
	return m.verdict(node, r, false, func(c *modelClaim) bool {
		return c.pod.UID == "" || !slices.Contains(victims, c.pod.UID)
	})
}

// FitAll answers for every node that exists.
func (m *Model) FitAll(r *resources.Request) map[string]ledger.Verdict {
	all := map[string]ledger.Verdict{}
	for name := range m.nodes {
		all[name] = m.verdict(name, r, false, everything)
	}
	return all
}

// NodeViews returns all nodes as readers of the ledger see them.
func (m *Model) NodeViews() []ledger.NodeView {
	names := slices.Collect(maps.Keys(m.nodes))
	for _, c := range m.claims {
		names = append(names, c.node)
	}
	slices.Sort(names)
	views := []ledger.NodeView{}
	for _, name := range slices.Compact(names) {
		views = append(views, m.nodeView(name))
	}
	return views
}

func (m *Model) nodeView(name string) ledger.NodeView {
	view := ledger.NodeView{Name: name}
	offered := map[v1.ResourceName]int64{}
	if n := m.nodes[name]; n != nil {
		view.Exists, view.Unschedulable, view.UID = true, n.cordoned, n.uid
		maps.Copy(offered, n.allocatable)
	}
	listed := maps.Clone(offered)
	for _, c := range m.claims {
		if c.node == name {
			view.Claims++
			maps.Copy(listed, m.asks(c.request))
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(listed)) {
		view.Amounts = append(view.Amounts, ledger.AmountView{
			Resource: resource, Allocatable: offered[resource],
			Bound:    m.sum(name, resource, func(c *modelClaim) bool { return c.state == ledger.Bound }),
			Reserved: m.sum(name, resource, func(c *modelClaim) bool { return c.state != ledger.Bound }),
			Free:     m.free(name, resource, everything),
		})
	}
	return view
}

// ClaimViews returns all claims as readers of the ledger see them.
func (m *Model) ClaimViews() []ledger.ClaimView {
	views := []ledger.ClaimView{}
	for _, c := range m.claims {
		views = append(views, c.view())
	}
	slices.SortFunc(views, func(a, b ledger.ClaimView) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return views
}

func (c *modelClaim) view() ledger.ClaimView {
	return ledger.ClaimView{
		Pod: c.pod, Node: c.node, State: c.state, Scheduler: c.scheduler,
		Priority: c.priority, Request: c.request, Deadline: c.deadline,
	}
}

// Stats returns the counts behind the metrics.
func (m *Model) Stats() ledger.Stats {
	var s ledger.Stats
	for _, c := range m.claims {
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
	return soonest, ok
}
