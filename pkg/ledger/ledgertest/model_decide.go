package ledgertest

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Reserve decides a plan on a copy and keeps the copy if the plan holds.
func (m *Model) Reserve(plan ledger.Plan, now time.Time) ledger.Result {
	if !plan.DryRun {
		m.Expire(now)
	}
	trial := m.clone()
	if plan.DryRun {
		for _, uid := range plan.Without {
			for _, c := range slices.Clone(trial.claims) {
				if uid != "" && c.pod.UID == uid {
					trial.forget(c)
				}
			}
		}
	}
	start := trial.clone()
	granted, rejections := trial.tryAll(&plan, nil)
	if shares := start.shares(asksOf(start, &plan)); plan.Mode != ledger.Partial && lackDevices(rejections) && shares != nil {
		if again, refused := start.tryAll(&plan, shares); len(refused) == 0 {
			trial, granted, rejections = start, again, nil
		}
	}
	result := ledger.Result{Rejections: rejections}
	if plan.Mode == ledger.Partial || len(result.Rejections) == 0 {
		result.Granted = len(granted)
	}
	if plan.DryRun || result.Granted == 0 {
		return result
	}
	for _, g := range granted {
		trial.keep(g, plan.Deadline)
	}
	*m = *trial
	return result
}

// tryAll tries the placements of a plan, with the devices meant for them.
func (m *Model) tryAll(plan *ledger.Plan, shares [][]ledger.GivenDevices) (granted []*grant, rejections []ledger.Rejection) {
	for k := range plan.Placements {
		m.share = nil
		if shares != nil {
			m.share = shares[k]
		}
		g, rejection := m.try(&plan.Placements[k])
		if rejection != nil {
			rejections = append(rejections, *rejection)
		} else {
			granted = append(granted, g)
		}
	}
	m.share = nil
	return granted, rejections
}

// grant is one placement that was granted.
type grant struct {
	claim   *modelClaim
	fresh   bool
	resized bool
	named   types.UID // the UID the claim got by it
}

func (m *Model) try(p *ledger.Placement) (*grant, *ledger.Rejection) {
	own := m.find(p.Pod)
	if own == nil {
		if h := m.holdFor(p.Pod); h != nil && h.Node != p.Node {
			r := m.refuse(p, ledger.Verdict{Reason: ledger.ClaimedElsewhere}, nil)
			r.ClaimedOn = h.Node
			return nil, r
		}
		c, rejection := m.admit(p, ledger.Reserved)
		if rejection != nil {
			return nil, rejection
		}
		return &grant{claim: m.add(*c, true), fresh: true}, nil
	}
	if own.node != p.Node {
		return nil, m.refuse(p, ledger.Verdict{Reason: ledger.ClaimedElsewhere}, own)
	}
	g := &grant{claim: own}
	if own.state == ledger.Reserved && (!sameRequest(own.request, p.Request) || !own.sameAsked(p.Devices)) {
		if v := m.verdictInPlace(own, p); v.Reason != ledger.Fits {
			return nil, m.refuse(p, v, own)
		}
		own.request, g.resized = p.Request, true
		m.setDevices(own, p.Devices)
	}
	if own.pod.UID == "" {
		own.pod.UID, g.named = p.Pod.UID, p.Pod.UID
	}
	return g, nil
}

// admit decides about a pod without a claim.
func (m *Model) admit(p *ledger.Placement, state ledger.State) (*modelClaim, *ledger.Rejection) {
	h, v := m.choose(p, p.Node)
	if _, gone := m.gone[p.Pod.UID]; gone && p.Pod.UID != "" {
		v = ledger.Verdict{Reason: ledger.PodGone}
	}
	if v.Reason != ledger.Fits {
		return nil, m.refuse(p, v, nil)
	}
	c := newClaim(p, state)
	if h != nil {
		c.uses = h.Ref
	}
	m.setDevices(&c, p.Devices)
	if share := m.freeShare(p.Node); share != nil {
		c.given = share
	}
	return &c, nil
}

func newClaim(p *ledger.Placement, state ledger.State) modelClaim {
	return modelClaim{
		pod: p.Pod, node: p.Node, state: state, scheduler: p.Scheduler,
		priority: p.Priority, request: p.Request,
	}
}

// keep announces a grant and gives it its deadline: a deadline is only ever put
// off, and none at all is later than any.
func (m *Model) keep(g *grant, deadline time.Time) {
	c := g.claim
	if g.named != "" {
		m.tell(ledger.ClaimIdentified, c)
	}
	if c.state != ledger.Reserved {
		return
	}
	later := !c.deadline.IsZero() && (deadline.IsZero() || deadline.After(c.deadline))
	changed := g.fresh || g.resized || later
	if g.fresh || later {
		c.deadline = deadline
	}
	if changed {
		m.tell(ledger.ClaimReserved, c)
	}
}

// refuse explains a refusal. Which holders it lists is checked apart, because
// the ledger may choose among equals.
func (m *Model) refuse(p *ledger.Placement, v ledger.Verdict, own *modelClaim) *ledger.Rejection {
	r := &ledger.Rejection{Pod: p.Pod, Node: p.Node, Reason: v.Reason}
	if own != nil {
		r.ClaimedOn = own.node
	}
	switch {
	case v.Reason == ledger.InsufficientResource && v.Unlisted:
		r.Resource, r.Requested, r.Unlisted = string(p.Request.Unlisted[0].Name), p.Request.Unlisted[0].Value, true
	case v.Reason == ledger.InsufficientResource:
		name := m.table.Name(v.Column)
		r.Resource = string(name)
		r.Requested = m.asks(p.Request)[name]
		r.Free = m.free(p.Node, name)
		r.Holders = m.holders(p.Node, name)
		slices.SortStableFunc(r.Holders, func(a, b ledger.Holder) int { return cmp.Compare(b.Amount, a.Amount) })
	case v.Reason == ledger.HostPortConflict:
		m.refusePort(r, p.Request, own)
	case v.Reason == ledger.InsufficientDevices, v.Reason == ledger.DeviceClaimInUse, v.Reason == ledger.DeviceClaimUnusable:
		if m.has(p.Node) {
			m.refuseDevices(r, p, own)
		}
	}
	return r
}

// holders returns who uses some of a resource on a node: pods what they ask for,
// holds what they keep beyond that.
func (m *Model) holders(node string, name v1.ResourceName) []ledger.Holder {
	var holders []ledger.Holder
	for _, c := range m.claims {
		if amount := m.asks(c.request)[name]; c.node == node && amount > 0 {
			holders = append(holders, holderOf(c, amount))
		}
	}
	for _, h := range m.holds {
		kept, asked := m.kept(h, name), m.asked(h, name)
		if h.Node == node && kept.Cmp(asked) > 0 {
			holders = append(holders, keeperOf(h, kept.Sub(kept, asked).Int64()))
		}
	}
	return holders
}

func (m *Model) refusePort(r *ledger.Rejection, request *resources.Request, own *modelClaim) {
	others, by := m, (*modelHold)(nil)
	if own != nil {
		others, by = m.only(func(c *modelClaim) bool { return c != own }, anyHold), m.hold(own.uses)
	}
	for _, p := range request.Ports {
		users := others.portUsers(r.Node, p, by)
		if len(users) == 0 {
			continue
		}
		r.Resource = "hostPort/" + string(p.Protocol) + "/" + itoa(int64(p.Port))
		r.Requested = 1
		r.Holders = users
		return
	}
}

func holderOf(c *modelClaim, amount int64) ledger.Holder {
	return ledger.Holder{Pod: c.pod, Scheduler: c.scheduler, State: c.state, Amount: amount}
}

func keeperOf(h *modelHold, amount int64) ledger.Holder {
	return ledger.Holder{Hold: h.Ref, Scheduler: h.Scheduler, State: ledger.Reserved, Amount: amount}
}

// StartBind marks a pod's claim Binding and makes one where there is none.
func (m *Model) StartBind(p *ledger.Placement, now time.Time) (ledger.Grant, *ledger.Rejection) {
	m.Expire(now)
	own := m.find(p.Pod)
	if own == nil {
		c, rejection := m.admit(p, ledger.Binding)
		if rejection != nil && p.Preempt && rejection.Reason != ledger.DeviceClaimInUse && m.preempt(p) {
			c, rejection = m.admit(p, ledger.Binding)
		}
		if rejection != nil {
			return ledger.Grant{}, rejection
		}
		m.tell(ledger.ClaimBinding, m.add(*c, false))
		return ledger.Grant{Hold: c.uses, Devices: c.ids()}, nil
	}
	before := ledger.Grant{Before: own.state, Hold: own.uses}
	if own.node != p.Node {
		return before, m.refuse(p, ledger.Verdict{Reason: ledger.ClaimedElsewhere}, own)
	}
	if v := m.verdictInPlace(own, p); v.Reason != ledger.Fits {
		return before, m.refuse(p, v, own)
	}
	m.identify(own, p.Pod.UID)
	if before.Before == ledger.Reserved {
		own.setState(ledger.Binding)
		if !sameRequest(own.request, p.Request) || !own.sameAsked(p.Devices) {
			own.request = p.Request
		}
		m.setDevices(own, p.Devices)
		m.tell(ledger.ClaimBinding, own)
	}
	before.Devices = own.ids()
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
			m.end(h, ledger.HoldPreempted, p.Pod)
		}
	}
	return ok
}

// Confirm records a bind that succeeded.
func (m *Model) Confirm(pod ledger.PodRef, node string) bool {
	c := m.find(pod)
	if c == nil || c.node != node {
		return false
	}
	m.identify(c, pod.UID)
	if c.state != ledger.Bound {
		c.setState(ledger.Bound)
		m.tell(ledger.ClaimBound, c)
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
	m.drop(c, ledger.ClaimBindFailed)
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
				reason = ledger.ClaimedElsewhere
			case p.Scheduler != "" && c.scheduler != "" && p.Scheduler != c.scheduler:
				reason = ledger.NotOwner
			case c.state != ledger.Reserved:
				reason = ledger.BindInFlight
			default:
				m.drop(c, ledger.ClaimUnreserved)
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

// Expire ends the reservations and holds whose deadline has come, soonest first.
// A hold waits until no bind is in flight that uses it.
func (m *Model) Expire(now time.Time) int {
	type entry struct {
		at time.Time
		do func() int
	}
	var due []entry
	for _, c := range m.claims {
		if !c.deadline.IsZero() && !c.deadline.After(now) {
			due = append(due, entry{c.deadline, func() int {
				m.drop(c, ledger.ClaimExpired)
				m.claimsExpired++
				return 1
			}})
		}
	}
	for _, h := range m.holds {
		if !h.overdue && !h.Deadline.IsZero() && !h.Deadline.After(now) {
			due = append(due, entry{h.Deadline, func() int { return m.expireHold(h) }})
		}
	}
	slices.SortStableFunc(due, func(a, b entry) int { return a.at.Compare(b.at) })
	count := 0
	for _, e := range due {
		count += e.do()
	}
	return count
}

func (m *Model) expireHold(h *modelHold) int {
	if h.overdue = m.beingBound(h.Ref); h.overdue {
		m.tellHold(ledger.HoldPlaced, h, h.Pod)
		return 0
	}
	m.end(h, ledger.HoldExpired, h.Pod)
	return 1
}
