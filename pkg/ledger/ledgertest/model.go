package ledgertest

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Model is the naive ledger. It is slow on purpose: it keeps the facts only and
// counts everything from them.
type Model struct {
	table  *resources.Table
	nodes  map[string]*modelNode
	claims []*modelClaim
	// names holds the newest claim reserved under a name that still exists.
	names map[podName]*modelClaim
	gone  map[types.UID]uint64
	// Events is what the ledger has to have told so far, without revisions.
	Events []ledger.Event
}

type podName struct{ namespace, name string }

type modelNode struct {
	exists      bool
	cordoned    bool
	uid         types.UID
	allocatable map[v1.ResourceName]int64
}

type modelClaim struct {
	pod       ledger.PodRef
	node      string
	state     ledger.State
	scheduler string
	priority  int32
	request   *resources.Request
	deadline  time.Time
	version   uint64
}

// NewModel returns an empty model. The table is only used to name columns.
func NewModel(table *resources.Table) *Model {
	return &Model{
		table: table,
		nodes: map[string]*modelNode{},
		names: map[podName]*modelClaim{},
		gone:  map[types.UID]uint64{},
	}
}

// clone copies everything that decisions change.
func (m *Model) clone() *Model {
	c := &Model{
		table: m.table, nodes: map[string]*modelNode{}, names: map[podName]*modelClaim{},
		gone: maps.Clone(m.gone), Events: slices.Clone(m.Events),
	}
	for name, n := range m.nodes {
		copied := *n
		c.nodes[name] = &copied
	}
	same := map[*modelClaim]*modelClaim{}
	for _, old := range m.claims {
		copied := *old
		same[old] = &copied
		c.claims = append(c.claims, &copied)
	}
	for name, old := range m.names {
		c.names[name] = same[old]
	}
	return c
}

// find returns the claim that belongs to a pod: the one with its UID, or one
// made for its name before it existed, unless the pod is known to be gone.
func (m *Model) find(pod ledger.PodRef) *modelClaim {
	if pod.UID != "" {
		for _, c := range m.claims {
			if c.pod.UID == pod.UID {
				return c
			}
		}
	}
	c := m.names[podName{pod.Namespace, pod.Name}]
	if c == nil || pod.UID == "" {
		return c
	}
	if _, gone := m.gone[pod.UID]; gone || c.pod.UID != "" {
		return nil
	}
	return c
}

// asks returns a request by resource name, the pod itself included.
func (m *Model) asks(r *resources.Request) map[v1.ResourceName]int64 {
	amounts := map[v1.ResourceName]int64{}
	for _, a := range r.Amounts {
		amounts[m.table.Name(a.Column)] = a.Value
	}
	return amounts
}

// sum adds up one resource over the claims on a node that count.
func (m *Model) sum(node string, name v1.ResourceName, counts func(*modelClaim) bool) int64 {
	total := new(big.Int)
	for _, c := range m.claims {
		if c.node == node && counts(c) {
			total.Add(total, big.NewInt(m.asks(c.request)[name]))
		}
	}
	if !total.IsInt64() {
		return math.MaxInt64
	}
	return total.Int64()
}

func everything(*modelClaim) bool { return true }

// free returns what is left of a resource on a node, counting some claims only.
func (m *Model) free(node string, name v1.ResourceName, counts func(*modelClaim) bool) int64 {
	offered := int64(0)
	if n := m.nodes[node]; n != nil {
		offered = n.allocatable[name]
	}
	return offered - m.sum(node, name, counts) // both are at least 0: no overflow
}

// verdict decides whether a request fits a node next to the claims that count.
func (m *Model) verdict(node string, r *resources.Request, mayBeCordoned bool, counts func(*modelClaim) bool) ledger.Verdict {
	n := m.nodes[node]
	if n == nil || !n.exists {
		return ledger.Verdict{Reason: ledger.NodeUnknown}
	}
	if n.cordoned && !r.ToleratesUnschedulable && !mayBeCordoned {
		return ledger.Verdict{Reason: ledger.NodeUnschedulable}
	}
	for _, a := range r.Amounts {
		if a.Value > m.free(node, m.table.Name(a.Column), counts) {
			return ledger.Verdict{Reason: ledger.InsufficientResource, Column: a.Column}
		}
	}
	if len(r.Unlisted) > 0 {
		return ledger.Verdict{Reason: ledger.InsufficientResource, Unlisted: true}
	}
	for _, p := range r.Ports {
		if len(m.portUsers(node, p, counts)) > 0 {
			return ledger.Verdict{Reason: ledger.HostPortConflict}
		}
	}
	return ledger.Verdict{}
}

// portUsers returns the claims on a node that occupy a host port.
func (m *Model) portUsers(node string, port resources.HostPort, counts func(*modelClaim) bool) []*modelClaim {
	var users []*modelClaim
	for _, c := range m.claims {
		if c.node != node || !counts(c) {
			continue
		}
		for _, p := range c.request.Ports {
			sameAddress := p.IP == port.IP || p.IP == "0.0.0.0" || port.IP == "0.0.0.0"
			if p.Protocol == port.Protocol && p.Port == port.Port && sameAddress {
				users = append(users, c)
				break
			}
		}
	}
	return users
}

// verdictInPlace decides whether a reservation may (still) be redeemed for a
// request. Room promised on a node that was cordoned since stays promised.
func (m *Model) verdictInPlace(c *modelClaim, r *resources.Request) ledger.Verdict {
	if c.state != ledger.Reserved {
		return ledger.Verdict{}
	}
	return m.verdict(c.node, r, true, func(o *modelClaim) bool { return o != c })
}

func sameRequest(a, b *resources.Request) bool {
	return slices.Equal(a.Amounts, b.Amounts) && slices.Equal(a.Unlisted, b.Unlisted) && slices.Equal(a.Ports, b.Ports)
}

// tell records what the ledger has to announce about a claim.
func (m *Model) tell(t ledger.EventType, c *modelClaim) {
	m.Events = append(m.Events, ledger.Event{
		Type: t, Node: c.node, Pod: c.pod, State: c.state, Scheduler: c.scheduler,
		Priority: c.priority, Request: c.request, Deadline: c.deadline,
	})
}

// add makes a claim. byName makes it known under the pod's name as well.
func (m *Model) add(c modelClaim, byName bool) *modelClaim {
	m.claims = append(m.claims, &c)
	if byName || c.pod.UID == "" {
		m.names[podName{c.pod.Namespace, c.pod.Name}] = &c
	}
	return &c
}

// drop ends a claim.
func (m *Model) drop(c *modelClaim, why ledger.EventType) {
	m.forget(c)
	c.deadline = time.Time{}
	m.tell(why, c)
}

func (m *Model) forget(c *modelClaim) {
	m.claims = slices.DeleteFunc(m.claims, func(o *modelClaim) bool { return o == c })
	maps.DeleteFunc(m.names, func(_ podName, o *modelClaim) bool { return o == c })
}

// setState changes a claim's state; only reservations expire.
func (c *modelClaim) setState(s ledger.State) {
	c.state = s
	if s != ledger.Reserved {
		c.deadline = time.Time{}
	}
}

// identify gives a claim made by name the UID of its pod, and says so.
func (m *Model) identify(c *modelClaim, uid types.UID) {
	if c.pod.UID == "" && uid != "" {
		c.pod.UID = uid
		m.tell(ledger.ClaimIdentified, c)
	}
}
