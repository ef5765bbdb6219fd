package ledgermodel

import (
	"math/big"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
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
	if p.Pod.UID == "" || gone || n == nil || !n.exists || m.find(p.Pod) != nil {
		return false
	}
	switch _, v := m.choose(p, p.Node); v.Reason {
	case ledger.InsufficientResource, ledger.HostPortConflict, ledger.InsufficientDevices:
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
	node := m.nominations[k].Node
	m.nominations = slices.Delete(slices.Clone(m.nominations), k, k+1)
	if own := m.find(pod); own == nil || own.node != node {
		n := m.nodes[node]
		m.Events = append(m.Events, ledger.Event{
			Type: ledger.NodeUpdated, Node: node, EventDetails: ledger.EventDetails{
				NodeUID: n.uid, Allocatable: n.said.Allocatable, DRA: n.said.DRA, Unschedulable: n.cordoned, Labels: n.labels,
				Lapsed: true,
			},
		})
	}
}

// rank is who asks for capacity: what is kept for pods of a higher priority is not theirs.
type rank struct {
	pod      ledger.PodRef
	priority int32
}

func rankOf(p *ledger.Placement) *rank { return &rank{p.Pod, p.Priority} }

// keptFrom is how much of a resource is kept from somebody; nothing from nil, who has what is asked for already.
func (m *Model) keptFrom(r *rank, node string, name v1.ResourceName) *big.Int {
	sum := new(big.Int)
	for _, n := range m.nominations {
		if r != nil && n.Node == node && n.Priority > r.priority && n.Pod.UID != r.pod.UID && m.find(n.Pod) == nil {
			sum.Add(sum, big.NewInt(m.asks(n.Request)[name]))
		}
	}
	return sum
}
