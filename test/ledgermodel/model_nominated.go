package ledgermodel

import (
	"math/big"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// modelNomination is a pod that others make way for.
type modelNomination struct {
	ledger.Placement

	until time.Time
}

// Nominate records that a pod is nominated.
func (m *Model) Nominate(p *ledger.Placement, until time.Time) bool {
	m.endNomination(p.Pod)
	_, gone := m.gone[p.Pod.UID]
	n := m.nodes[p.Node]
	at := 0
	for _, other := range m.nominations {
		if other.Node == p.Node {
			at++
		}
	}
	if p.Pod.UID == "" || gone || n == nil || !n.exists || at == 32 || m.find(p.Pod) != nil {
		return false
	}
	switch _, v := m.choose(p, p.Node); v.Reason {
	case ledger.InsufficientResource, ledger.HostPortConflict, ledger.AntiAffinity, ledger.InsufficientDevices:
	default:
		return false
	}
	others := m.only(func(c *modelAllocation) bool {
		return c.inMemory() || c.node != p.Node || c.priority >= p.Priority
	}, anySlot)
	if _, v := others.choose(p, p.Node); v.Reason != ledger.Fits {
		return false
	}
	m.nominations = append(m.nominations, modelNomination{*p, until})
	return true
}

func (m *Model) endNomination(pod ledger.PodRef) {
	k := slices.IndexFunc(m.nominations, func(n modelNomination) bool { return n.Pod.UID == pod.UID })
	if k < 0 || pod.UID == "" {
		return
	}
	ended := m.nominations[k]
	node := ended.Node
	m.nominations = slices.Delete(slices.Clone(m.nominations), k, k+1)
	if !m.isServed(&ended) {
		n := m.nodes[node]
		m.Events = append(m.Events, ledger.Event{
			Type: ledger.NodeUpdated, Node: node, EventDetails: ledger.EventDetails{
				NodeUID: n.uid, Allocatable: n.said.Allocatable, DRA: n.said.DRA, Unschedulable: n.cordoned, Labels: n.labels,
				Lapsed: true,
			},
		})
	}
}

// isServed reports whether a nominated pod has capacity on its node.
func (m *Model) isServed(n *modelNomination) bool {
	own := m.find(n.Pod)
	return own != nil && own.node == n.Node
}

// rank is who asks for capacity: what is kept for pods of a higher priority is not theirs, but for what they have.
type rank struct {
	pod      ledger.PodRef
	priority int32
	has      *modelAllocation
}

func rankOf(p *ledger.Placement, has *modelAllocation) *rank { return &rank{p.Pod, p.Priority, has} }

// freeFor is how much of a resource is free to somebody. Of what was free before, as much as pods of a higher priority
// ask for is kept; what somebody has, or gives up in the same step, was not free.
func (m *Model) freeFor(r *rank, node string, name v1.ResourceName) int64 {
	free := m.free(node, name)
	was := free
	switch {
	case m.base != nil:
		was = m.base.free(node, name)
	case r.has != nil:
		was = resources.Sub(free, m.asks(r.has.request)[name])
	}
	kept := new(big.Int)
	for k := range m.nominations {
		n := &m.nominations[k]
		same := n.Pod == r.pod || r.pod.UID == "" && n.Pod.Namespace == r.pod.Namespace && n.Pod.Name == r.pod.Name
		if n.Node == node && n.Priority > r.priority && !same && !m.isServed(n) {
			kept.Add(kept, big.NewInt(m.asks(n.Request)[name]))
		}
	}
	return resources.Sub(free, min(count(kept), max(was, 0)))
}
