package ledgermodel

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Model is the naive ledger. It is slow on purpose: it keeps the facts only and
// counts everything from them.
type Model struct {
	table       *resources.Table
	nodes       map[string]*modelNode
	allocations []*modelAllocation
	// devices are those of each node that has some, by name.
	devices map[string][]devices.Device
	slots   []*modelSlot // in the order they were made
	// names has, for a name, the newest allocation of a pod whose bind began without a UID, or
	// that had a slot in memory.
	names map[podName]*modelAllocation
	gone  map[types.UID]uint64
	// Events is what the ledger has to have told so far, without revisions.
	Events []ledger.Event
	// share are the devices meant for the part of a plan that is tried; nil where it
	// chooses for itself.
	share []ledger.GivenDevices

	memoryExpired uint64

	limits map[ledger.BudgetKind]map[string]*ledger.Limits

	nominations []modelNomination
	base        *Model // before an exchange that is tried
}

type podName struct{ namespace, name string }

type modelNode struct {
	exists      bool
	cordoned    bool
	uid         types.UID
	labels      map[string]string
	allocatable map[v1.ResourceName]int64
	dra         map[v1.ResourceName]bool
	said        ledger.NodeObservation
}

// modelAllocation is a pod's share of a node, from the moment on that it is kept for the pod
// in memory: its state is NoAllocation then, and the ledger has a slot.
type modelAllocation struct {
	pod       ledger.PodRef
	node      string
	state     ledger.State
	scheduler string
	caller    string
	priority  int32
	request   *resources.Request
	deadline  time.Time
	version   uint64
	uses      ledger.SlotRef // as long as there is such a slot
	boundWith ledger.SlotRef // what the pod was bound with, should that slot be found later
	boundUID  types.UID      // of the reservation that was of, if known
	devices   *ledger.DeviceRequest
	given     []ledger.GivenDevices
	said      bool // its pod was seen bound with these
	movable   bool // kept in memory, and its pod may be bound elsewhere
	unborn    bool // kept in memory for a pod of its scheduler that did not exist
	// seen is what the pod asked for when it was seen last, and granted what a resize of its version was granted
	// that may still be written; nil where there is none.
	seen, granted *resources.Request
	resizes       uint64
}

type modelSlot struct {
	ledger.Slot
	given   []ledger.GivenDevices
	overdue bool // its deadline has passed, and it waits for a bind
}

// NewModel returns an empty model. The table is only used to name columns.
func NewModel(table *resources.Table) *Model {
	return &Model{
		table: table,
		nodes: map[string]*modelNode{},
		names: map[podName]*modelAllocation{},
		gone:  map[types.UID]uint64{},

		devices: map[string][]devices.Device{},
		limits:  map[ledger.BudgetKind]map[string]*ledger.Limits{ledger.OfNamespace: {}, ledger.OfCaller: {}},
	}
}

// clone copies everything that decisions change.
func (m *Model) clone() *Model {
	c := &Model{
		table: m.table, nodes: map[string]*modelNode{}, names: map[podName]*modelAllocation{},
		gone: maps.Clone(m.gone), Events: slices.Clone(m.Events), memoryExpired: m.memoryExpired,
		devices: maps.Clone(m.devices), limits: m.limits, nominations: slices.Clone(m.nominations), base: m.base,
	}
	for name, n := range m.nodes {
		copied := *n
		c.nodes[name] = &copied
	}
	same := map[*modelAllocation]*modelAllocation{}
	for _, old := range m.allocations {
		copied := *old
		same[old] = &copied
		c.allocations = append(c.allocations, &copied)
	}
	for name, old := range m.names {
		c.names[name] = same[old]
	}
	for _, old := range m.slots {
		copied := *old
		c.slots = append(c.slots, &copied)
	}
	return c
}

// only returns a model of some allocations and slots, for a question. It shares them.
func (m *Model) only(allocations func(*modelAllocation) bool, slots func(*modelSlot) bool) *Model {
	part := *m
	part.allocations = slices.DeleteFunc(slices.Clone(m.allocations),
		func(c *modelAllocation) bool { return !allocations(c) })
	part.slots = slices.DeleteFunc(slices.Clone(m.slots), func(h *modelSlot) bool { return !slots(h) })
	return &part
}

// find returns the allocation that belongs to a pod: the one with its UID, or one
// made for its name before it existed, unless the pod is known to be gone. Of a pod that
// has no UID the allocation comes before what is kept in memory, and of that the newest first.
func (m *Model) find(pod ledger.PodRef) *modelAllocation {
	if pod.UID != "" {
		for _, c := range m.allocations {
			if c.pod.UID == pod.UID {
				return c
			}
		}
	}
	_, gone := m.gone[pod.UID]
	gone = gone && pod.UID != ""
	if c := m.names[podName{pod.Namespace, pod.Name}]; c != nil && (pod.UID == "" || (c.pod.UID == "" && !gone)) {
		return c
	}
	for _, c := range m.keptInMemory(pod) {
		if !gone {
			return c
		}
	}
	return nil
}

func (c *modelAllocation) inMemory() bool { return c.state == ledger.NoAllocation }

// keptInMemory returns what is kept in memory for a pod, the newest first.
func (m *Model) keptInMemory(pod ledger.PodRef) []*modelAllocation {
	var kept []*modelAllocation
	for _, c := range slices.Backward(m.allocations) {
		sameName := c.pod.Namespace == pod.Namespace && c.pod.Name == pod.Name
		if c.inMemory() && sameName && (c.pod.UID == pod.UID || c.pod.UID == "" || pod.UID == "") {
			kept = append(kept, c)
		}
	}
	return kept
}

// asks returns a request by resource name, the pod itself included.
func (m *Model) asks(r *resources.Request) map[v1.ResourceName]int64 {
	amounts := map[v1.ResourceName]int64{}
	for _, a := range r.Amounts {
		amounts[m.table.Name(a.Column)] = a.Value
	}
	return amounts
}

// used adds up one resource on a node: what pods without a slot ask for, and of
// each slot the larger of what it keeps and what its pods ask for.
func (m *Model) used(node string, name v1.ResourceName) *big.Int {
	total := new(big.Int)
	for _, c := range m.allocations {
		if c.node == node && m.slot(c.uses) == nil {
			total.Add(total, big.NewInt(m.asks(c.request)[name]))
		}
	}
	for _, h := range m.slots {
		if h.Node == node {
			total.Add(total, larger(m.kept(h, name), m.asked(h, name)))
		}
	}
	return total
}

func larger(a, b *big.Int) *big.Int {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

// kept returns what a slot keeps of a resource.
func (m *Model) kept(h *modelSlot, name v1.ResourceName) *big.Int {
	return big.NewInt(m.asks(h.Request)[name])
}

// asked returns what the pods that use a slot ask for of a resource.
func (m *Model) asked(h *modelSlot, name v1.ResourceName) *big.Int {
	total := new(big.Int)
	for _, c := range m.allocations {
		if c.uses == h.Ref {
			total.Add(total, big.NewInt(m.asks(c.request)[name]))
		}
	}
	return total
}

// count turns a sum into what the ledger counts: a sum without an int64 is the
// largest there is.
func count(sum *big.Int) int64 {
	if !sum.IsInt64() {
		return math.MaxInt64
	}
	return sum.Int64()
}

// free returns what is left of a resource on a node.
func (m *Model) free(node string, name v1.ResourceName) int64 {
	return m.devicesFree(node, name, m.offered(node, name), count(m.used(node, name))) // all are at least 0: no overflow
}

// verdict decides whether a request fits a node, by use of a slot or without.
func (m *Model) verdict(node string, r *resources.Request, mayBeCordoned bool, by *modelSlot,
	who *rank,
) ledger.Verdict {
	n := m.nodes[node]
	if n == nil || !n.exists {
		return ledger.Verdict{Reason: ledger.NodeUnknown}
	}
	if n.cordoned && !r.ToleratesUnschedulable && !mayBeCordoned {
		return ledger.Verdict{Reason: ledger.NodeUnschedulable}
	}
	next := modelAllocation{node: node, request: r}
	if by != nil {
		next.uses = by.Ref
	}
	with := m.only(anyAllocation, anySlot)
	with.allocations = append(with.allocations, &next)
	for _, a := range r.Amounts {
		name := m.table.Name(a.Column)
		more := new(big.Int).Sub(with.used(node, name), m.used(node, name))
		exceeds := by != nil && by.restricts(name, m) && with.asked(by, name).Cmp(m.kept(by, name)) > 0
		if exceeds || more.Cmp(big.NewInt(m.freeFor(who, node, name))) > 0 {
			return ledger.Verdict{Reason: ledger.InsufficientResource, Column: a.Column}
		}
	}
	if len(r.Unlisted) > 0 {
		return ledger.Verdict{Reason: ledger.InsufficientResource, Unlisted: true}
	}
	for _, p := range r.Ports {
		switch {
		case len(m.portUsers(node, p, by)) == 0 || !m.counts(node, p):
		case p.IsTerm():
			return ledger.Verdict{Reason: ledger.AntiAffinity}
		default:
			return ledger.Verdict{Reason: ledger.HostPortConflict}
		}
	}
	return ledger.Verdict{}
}

// restricts reports whether the pods of a slot may ask for no more of a resource
// than it keeps.
func (h *modelSlot) restricts(name v1.ResourceName, m *Model) bool {
	return h.Policy == ledger.Restricted && name != v1.ResourcePods && m.asks(h.Request)[name] > 0
}

// counts reports whether a port, or a term of anti-affinity, matters on a node.
func (m *Model) counts(node string, p resources.HostPort) bool {
	_, named := m.nodes[node].labels[v1.LabelHostname]
	return named || !p.IsTerm()
}

// portUsers returns who occupies a host port on a node, but for one slot.
func (m *Model) portUsers(node string, port resources.HostPort, but *modelSlot) []ledger.Holder {
	collides := func(r *resources.Request) bool {
		return slices.ContainsFunc(r.Ports, func(p resources.HostPort) bool {
			sameAddress := p.IP == port.IP || p.IP == "0.0.0.0" || port.IP == "0.0.0.0"
			if p.IsTerm() {
				return p.IP == port.IP && (p.Kept || port.Kept)
			}
			return p.Protocol == port.Protocol && p.Port == port.Port && sameAddress
		})
	}
	var users []ledger.Holder
	for _, c := range m.allocations {
		if c.node == node && collides(c.request) {
			users = append(users, holderOf(c, 1))
		}
	}
	for _, h := range m.slots {
		if h.Node == node && h != but && collides(h.Request) {
			users = append(users, keeperOf(h, 1))
		}
	}
	return users
}

// verdictInPlace decides whether a reservation may (still) be redeemed for a
// request, as if it had not been made yet. Capacity promised on a node that was
// cordoned since stays promised.
func (m *Model) verdictInPlace(c *modelAllocation, p *ledger.Placement) ledger.Verdict {
	if !c.inMemory() {
		return ledger.Verdict{}
	}
	return m.verdictAnew(c, p)
}

// verdictAnew says whether what a pod has may turn into what is asked, where it is.
func (m *Model) verdictAnew(c *modelAllocation, p *ledger.Placement) ledger.Verdict {
	if n := m.nodes[c.node]; n == nil || !n.exists {
		return ledger.Verdict{Reason: ledger.NodeUnknown}
	}
	others := m.only(func(o *modelAllocation) bool { return o != c }, anySlot)
	if v := others.over(owners{c.pod.Namespace, c.caller}, p.Request, m.slot(c.uses), c); v.Reason != ledger.Fits {
		return v
	}
	if v := others.claimsUsable(p, m.slot(c.uses)); v.Reason != ledger.Fits {
		return v
	}
	by := m.slot(c.uses)
	return others.withDevices(others.verdict(c.node, p.Request, true, by, rankOf(p, c)), c.node, p, by,
		func() bool { return others.devicesInPlace(c, p, by) })
}

func anyAllocation(*modelAllocation) bool { return true }
func anySlot(*modelSlot) bool             { return true }

func sameRequest(a, b *resources.Request) bool {
	return slices.Equal(a.Amounts, b.Amounts) && slices.Equal(a.Unlisted, b.Unlisted) && slices.Equal(a.Ports, b.Ports) &&
		slices.Equal(a.ByDRA, b.ByDRA)
}

// tell records what the ledger has to announce about an allocation, or a slot in memory.
func (m *Model) tell(t ledger.EventType, c *modelAllocation) {
	e := ledger.Event{
		Type: t, Node: c.node, Pod: c.pod, State: c.state, Scheduler: c.scheduler,
		Priority: c.priority, Request: c.request, EventDetails: ledger.EventDetails{Given: c.given},
	}
	if c.inMemory() {
		e.Movable = c.movable
		e.Within, e.Deadline, e.Policy, e.Devices = c.uses, c.deadline, ledger.Once, c.devices
	} else {
		e.Slot = c.uses
	}
	m.Events = append(m.Events, e)
}

// add makes an allocation, or keeps something in memory.
func (m *Model) add(c modelAllocation) *modelAllocation {
	m.allocations = append(m.allocations, &c)
	if !c.inMemory() && c.pod.UID == "" {
		m.nameIt(&c)
	}
	return &c
}

// nameIt makes an allocation known under its pod's name.
func (m *Model) nameIt(c *modelAllocation) { m.names[podName{c.pod.Namespace, c.pod.Name}] = c }

// begin turns what is kept in memory into an allocation.
func (m *Model) begin(c *modelAllocation, pod ledger.PodRef, s ledger.State) {
	m.identify(c, pod.UID)
	c.state, c.deadline, c.movable = s, time.Time{}, false
	m.nameIt(c)
}

// drop ends an allocation.
func (m *Model) drop(c *modelAllocation, why ledger.EventType) {
	m.forget(c)
	m.tell(why, c)
	m.waited(c.uses)
}

func (m *Model) forget(c *modelAllocation) {
	m.allocations = slices.DeleteFunc(m.allocations, func(o *modelAllocation) bool { return o == c })
	maps.DeleteFunc(m.names, func(_ podName, o *modelAllocation) bool { return o == c })
}

// identify gives an allocation made by name the UID of its pod, and says so.
func (m *Model) identify(c *modelAllocation, uid types.UID) {
	if c.pod.UID == "" && uid != "" {
		c.pod.UID = uid
		if c.inMemory() {
			m.tell(ledger.SlotIdentified, c)
			return
		}
		m.tell(ledger.AllocationIdentified, c)
	}
}
