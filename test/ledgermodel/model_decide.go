package ledgermodel

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Reserve decides a plan on a copy and keeps the copy if the plan holds.
func (m *Model) Reserve(plan ledger.Plan, now time.Time) ledger.Result {
	m.Expire(now)
	trial, result := m.Try(plan)
	*m = *trial
	return result
}

// Without returns a copy without some pods.
func (m *Model) Without(pods []types.UID) *Model {
	trial := m.clone()
	for _, c := range slices.Clone(trial.allocations) {
		if c.pod.UID != "" && slices.Contains(pods, c.pod.UID) {
			trial.forget(c)
		}
	}
	return trial
}

// Try decides a plan on a copy and returns that.
func (m *Model) Try(plan ledger.Plan) (*Model, ledger.Result) {
	trial, again := m.clone(), m.clone()
	granted, result := trial.tryAll(&plan, nil)
	if shares := again.shares(asksOf(again, &plan)); plan.Mode != ledger.Partial && lackDevices(result.Rejections) &&
		shares != nil {
		if other, better := again.tryAll(&plan, shares); len(better.Rejections) == 0 {
			trial, granted, result = again, other, better
		}
	}
	if plan.Mode != ledger.Partial && len(result.Rejections) > 0 {
		return m.clone(), ledger.Result{Rejections: result.Rejections}
	}
	for _, g := range granted {
		trial.keep(g)
	}
	return trial, result
}

// tryAll tries the slots of a plan, with the devices meant for them.
func (m *Model) tryAll(plan *ledger.Plan, shares [][]ledger.GivenDevices) (granted []*grant, result ledger.Result) {
	result.Existing, result.Held = map[int]ledger.SlotRef{}, map[int]bool{}
	for k := range plan.Slots {
		m.share = nil
		if shares != nil {
			m.share = shares[k]
		}
		g, existing, rejection := m.try(&plan.Slots[k])
		switch {
		case rejection != nil:
			result.Rejections = append(result.Rejections, *rejection)
			continue
		case existing != nil:
			result.Existing[k] = existing.Ref
		default:
			granted = append(granted, g)
			if g.slot == nil && (!g.fresh || g.from != nil) {
				result.Held[k] = true
			}
		}
		result.Granted++
	}
	m.share = nil
	return granted, result
}

// grant is one slot that was granted.
type grant struct {
	slot       *modelSlot       // a new slot of a reservation, or:
	allocation *modelAllocation // what the pod has
	fresh      bool
	resized    bool
	named      bool             // it got the pod's UID
	from       *modelAllocation // what was kept elsewhere before
	deadline   time.Time
}

func (m *Model) try(spec *ledger.Slot) (*grant, *modelSlot, *ledger.Rejection) {
	if spec.InMemory() {
		g, rejection := m.tryMemory(spec)
		return g, nil, rejection
	}
	existing, rejection := m.allow(spec)
	if rejection != nil || existing != nil {
		if rejection != nil {
			rejection.Slot = spec.Ref
		}
		return nil, existing, rejection
	}
	return &grant{slot: m.make(spec)}, nil, nil
}

func (m *Model) tryMemory(spec *ledger.Slot) (*grant, *ledger.Rejection) {
	p := asPlacement(spec)
	own := m.find(p.Pod)
	if own == nil {
		if h := m.slotFor(p.Pod); h != nil && h.Node != p.Node {
			r := m.refuse(p, ledger.Verdict{Reason: ledger.AllocatedElsewhere}, nil)
			r.AllocatedOn = h.Node
			return nil, r
		}
		return m.fresh(spec, p, true)
	}
	if own.node != p.Node && own.movable {
		return m.moved(own, *spec, p, true)
	}
	if own.node != p.Node {
		return nil, m.refuse(p, ledger.Verdict{Reason: ledger.AllocatedElsewhere}, own)
	}
	g := &grant{allocation: own, deadline: spec.Deadline}
	if !own.inMemory() {
		return g, nil
	}
	if !own.movable && !ledger.MayAll(spec.Caller) && spec.Caller != own.caller {
		return nil, m.refuse(p, ledger.Verdict{Reason: ledger.NotOwner}, own)
	}
	if !sameRequest(own.request, p.Request) || !own.sameAsked(p.Devices) {
		v := m.verdictInPlace(own, p)
		if v.Reason == ledger.Fits {
			others := m.only(func(c *modelAllocation) bool { return c != own }, anySlot)
			v = others.overKeep(owners{own.pod.Namespace, own.caller}, p.Request, m.slot(own.uses), own)
		}
		if v.Reason != ledger.Fits {
			return nil, m.refuse(p, v, own)
		}
		own.request, g.resized = p.Request, true
		m.setDevices(own, p.Devices)
	}
	if own.pod.UID == "" && p.Pod.UID != "" {
		own.pod.UID, g.named = p.Pod.UID, true
	}
	if own.movable && !spec.Movable {
		own.movable, g.resized = false, true
	}
	return g, nil
}

// fresh keeps something in memory for a pod that has nothing.
func (m *Model) fresh(spec *ledger.Slot, p *ledger.Placement, forLater bool) (*grant, *ledger.Rejection) {
	c, rejection := m.admit(p, ledger.NoAllocation)
	if rejection == nil && forLater {
		if v := m.overKeep(ownersOf(p), p.Request, m.slot(c.uses), nil); v.Reason != ledger.Fits {
			rejection = m.refuse(p, v, nil)
		}
	}
	if rejection != nil {
		return nil, rejection
	}
	c.deadline, c.movable, c.unborn = spec.Deadline, spec.Movable, spec.Unborn
	return &grant{allocation: m.add(*c), fresh: true}, nil
}

// without returns a model without something that is kept in memory, for a question. It shares the rest.
func (m *Model) without(own *modelAllocation) *Model {
	part := m.only(func(c *modelAllocation) bool { return c != own }, anySlot)
	part.names = maps.Clone(m.names)
	maps.DeleteFunc(part.names, func(_ podName, o *modelAllocation) bool { return o == own })
	return part
}

func asPlacement(spec *ledger.Slot) *ledger.Placement {
	return &ledger.Placement{
		Pod: spec.Pod, Node: spec.Node, Request: spec.Request, Scheduler: spec.Scheduler, Caller: spec.Caller,
		Priority: spec.Priority,
		Slots:    spec.Slots, Devices: spec.Devices, NoDRA: spec.NoDRA || spec.Ref.Name != "",
	}
}

// admit decides about a pod without an allocation.
func (m *Model) admit(p *ledger.Placement, state ledger.State) (*modelAllocation, *ledger.Rejection) {
	h, v := m.choose(p, p.Node)
	if _, gone := m.gone[p.Pod.UID]; gone && p.Pod.UID != "" {
		v = ledger.Verdict{Reason: ledger.PodGone}
	}
	if v.Reason != ledger.Fits {
		return nil, m.refuse(p, v, nil)
	}
	c := newAllocation(p, state)
	if h != nil {
		c.uses = h.Ref
	}
	m.setDevices(&c, p.Devices)
	if share := m.freeShare(p.Node); share != nil {
		c.given = share
	}
	return &c, nil
}

func newAllocation(p *ledger.Placement, state ledger.State) modelAllocation {
	return modelAllocation{
		pod: p.Pod, node: p.Node, state: state, scheduler: p.Scheduler, caller: p.Caller,
		priority: p.Priority, request: p.Request,
	}
}

// keep announces a grant and puts off a deadline: that is all a renewal ever does to it,
// and none at all is later than any.
func (m *Model) keep(g *grant) {
	if g.slot != nil {
		m.tellSlot(ledger.SlotPlaced, g.slot, g.slot.Pod)
		return
	}
	c := g.allocation
	if !c.inMemory() {
		return
	}
	if g.from != nil {
		m.tell(ledger.SlotReleased, g.from)
	}
	later := !g.fresh && !c.deadline.IsZero() && (g.deadline.IsZero() || g.deadline.After(c.deadline))
	if later {
		c.deadline = g.deadline
	}
	if g.named {
		m.tell(ledger.SlotIdentified, c)
	}
	if g.fresh || g.resized || later {
		m.tell(ledger.SlotPlaced, c)
	}
}

// StartBind marks a pod's allocation Binding and makes one where there is none.
func (m *Model) StartBind(p *ledger.Placement, now time.Time) (ledger.Grant, *ledger.Rejection) {
	m.Expire(now)
	own := m.find(p.Pod)
	if own != nil && own.movable && own.node != p.Node {
		return m.bindElsewhere(own, p)
	}
	if own == nil {
		c, rejection := m.admit(p, ledger.Binding)
		if rejection != nil && p.Preempt && rejection.Reason != ledger.DeviceClaimInUse && m.preempt(p) {
			c, rejection = m.admit(p, ledger.Binding)
		}
		if rejection != nil {
			return ledger.Grant{}, rejection
		}
		m.giveCounted(c)
		m.tell(ledger.AllocationBinding, m.add(*c))
		return ledger.Grant{Slot: c.uses, Caller: c.caller, Devices: c.given}, nil
	}
	before := ledger.Grant{Before: own.state, Slot: own.uses, Caller: own.caller}
	if own.inMemory() {
		before.Slot, before.Caller = ledger.SlotRef{}, ""
	}
	if own.node != p.Node {
		return before, m.refuse(p, ledger.Verdict{Reason: ledger.AllocatedElsewhere}, own)
	}
	if v := m.verdictInPlace(own, p); v.Reason != ledger.Fits {
		return before, m.refuse(p, v, own)
	}
	if own.inMemory() {
		m.begin(own, p.Pod, ledger.Binding)
		own.request = p.Request
		m.setDevices(own, p.Devices)
		m.giveCounted(own)
		m.tell(ledger.AllocationBinding, own)
	}
	m.identify(own, p.Pod.UID)
	before.Slot, before.Caller, before.Devices = own.uses, own.caller, own.given
	return before, nil
}

// ChangeBind has an allocation that is Binding count for something else.
func (m *Model) ChangeBind(p *ledger.Placement, now time.Time) (ledger.Grant, *ledger.Rejection) {
	m.Expire(now)
	own := m.find(p.Pod)
	if own == nil || own.state != ledger.Binding || own.node != p.Node {
		return m.StartBind(p, now)
	}
	before := ledger.Grant{Before: own.state, Slot: own.uses, Caller: own.caller}
	if v := m.verdictAnew(own, p); v.Reason != ledger.Fits {
		return before, m.refuse(p, v, own)
	}
	own.request, own.seen, own.granted, own.resizes = p.Request, nil, nil, 0
	m.setDevices(own, p.Devices)
	m.giveCounted(own)
	m.identify(own, p.Pod.UID)
	m.tell(ledger.AllocationResized, own)
	before.Devices = own.given
	return before, nil
}

// preempt ends the reservations that must for a pod to fit, if that helps.
func (m *Model) preempt(p *ledger.Placement) bool {
	if _, gone := m.gone[p.Pod.UID]; gone && p.Pod.UID != "" {
		return false
	}
	victims, ok := m.preemption(p, p.Node)
	for _, name := range victims {
		for _, h := range m.reservation(name.namespace, name.name) {
			m.end(h, ledger.SlotPreempted, p.Pod)
		}
	}
	return ok
}

// Confirm records a bind that succeeded.
func (m *Model) Confirm(pod ledger.PodRef, node string) bool {
	c := m.find(pod)
	if c == nil || c.node != node || c.inMemory() {
		return false
	}
	m.identify(c, pod.UID)
	if c.state != ledger.Bound {
		c.state = ledger.Bound
		m.tell(ledger.AllocationBound, c)
		m.bound(c)
	}
	return true
}

// BindFailed records a bind that definitely failed.
func (m *Model) BindFailed(pod ledger.PodRef, node string) bool {
	c := m.find(pod)
	if c == nil || c.node != node || c.state != ledger.Binding {
		return false
	}
	m.drop(c, ledger.AllocationBindFailed)
	return true
}

// Unreserve gives reservations back.
func (m *Model) Unreserve(placements []ledger.Placement) ledger.Result {
	var result ledger.Result
	for k := range placements {
		p := &placements[k]
		c := m.find(p.Pod)
		reason := ledger.Fits
		if c != nil {
			switch {
			case p.Node != "" && p.Node != c.node:
				reason = ledger.AllocatedElsewhere
			case p.Scheduler != "" && c.scheduler != "" && p.Scheduler != c.scheduler:
				reason = ledger.NotOwner
			case !c.inMemory():
				reason = ledger.BindInFlight
			case !ledger.MayAll(p.Caller) && p.Caller != c.caller:
				reason = ledger.NotOwner
			default:
				m.drop(c, ledger.SlotReleased)
			}
		}
		if reason == ledger.Fits {
			result.Granted++
		} else {
			result.Rejections = append(result.Rejections, *m.refuse(p, ledger.Verdict{Reason: reason}, c))
		}
	}
	return result
}

// Expire ends the reservations and slots whose deadline has come, soonest first.
// A slot waits until no bind is in flight that uses it.
func (m *Model) Expire(now time.Time) int {
	type entry struct {
		at time.Time
		do func() int
	}
	nominations := slices.Clone(m.nominations)
	slices.SortFunc(nominations, func(a, b modelNomination) int {
		return cmp.Or(b.until.Compare(a.until), cmp.Compare(b.Pod.UID, a.Pod.UID))
	})
	for _, n := range nominations {
		if !n.until.After(now) {
			m.endNomination(n.Pod)
		}
	}
	var due []entry
	for _, c := range m.allocations {
		if !c.deadline.IsZero() && !c.deadline.After(now) {
			due = append(due, entry{c.deadline, func() int {
				m.drop(c, ledger.SlotExpired)
				m.memoryExpired++
				return 1
			}})
		}
	}
	for _, h := range m.slots {
		if !h.overdue && !h.Deadline.IsZero() && !h.Deadline.After(now) {
			due = append(due, entry{h.Deadline, func() int { return m.expireSlot(h) }})
		}
	}
	slices.SortStableFunc(due, func(a, b entry) int { return a.at.Compare(b.at) })
	count := 0
	for _, e := range due {
		count += e.do()
	}
	return count
}

func (m *Model) expireSlot(h *modelSlot) int {
	if h.overdue = m.beingBound(h.Ref); h.overdue {
		m.tellSlot(ledger.SlotPlaced, h, h.Pod)
		return 0
	}
	m.end(h, ledger.SlotExpired, h.Pod)
	return 1
}
