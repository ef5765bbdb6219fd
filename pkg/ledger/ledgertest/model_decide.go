package ledgertest

import (
	"cmp"
	"slices"
	"time"

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
	var result ledger.Result
	var granted []*grant
	for k := range plan.Placements {
		g, rejection := trial.try(&plan.Placements[k])
		if rejection != nil {
			result.Rejections = append(result.Rejections, *rejection)
		} else {
			granted = append(granted, g)
		}
	}
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
		v := m.verdict(p.Node, p.Request, false, everything)
		if _, gone := m.gone[p.Pod.UID]; gone && p.Pod.UID != "" {
			v = ledger.Verdict{Reason: ledger.PodGone}
		}
		if v.Reason != ledger.Fits {
			return nil, m.refuse(p, v, nil)
		}
		return &grant{claim: m.add(newClaim(p, ledger.Reserved), true), fresh: true}, nil
	}
	if own.node != p.Node {
		return nil, m.refuse(p, ledger.Verdict{Reason: ledger.ClaimedElsewhere}, own)
	}
	g := &grant{claim: own}
	if own.state == ledger.Reserved && !sameRequest(own.request, p.Request) {
		if v := m.verdictInPlace(own, p.Request); v.Reason != ledger.Fits {
			return nil, m.refuse(p, v, own)
		}
		own.request, g.resized = p.Request, true
	}
	if own.pod.UID == "" {
		own.pod.UID, g.named = p.Pod.UID, p.Pod.UID
	}
	return g, nil
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
		r.Resource, r.Requested = string(p.Request.Unlisted[0].Name), p.Request.Unlisted[0].Value
	case v.Reason == ledger.InsufficientResource:
		name := m.table.Name(v.Column)
		r.Resource = string(name)
		r.Requested = m.asks(p.Request)[name]
		r.Free = m.free(p.Node, name, everything)
		for _, c := range m.claims {
			if amount := m.asks(c.request)[name]; c.node == p.Node && amount > 0 {
				r.Holders = append(r.Holders, m.holder(c, amount))
			}
		}
		slices.SortStableFunc(r.Holders, func(a, b ledger.Holder) int { return cmp.Compare(b.Amount, a.Amount) })
	case v.Reason == ledger.HostPortConflict:
		m.refusePort(r, p.Request, own)
	}
	return r
}

func (m *Model) refusePort(r *ledger.Rejection, request *resources.Request, own *modelClaim) {
	for _, p := range request.Ports {
		users := m.portUsers(r.Node, p, func(c *modelClaim) bool { return c != own })
		if len(users) == 0 {
			continue
		}
		r.Resource = "hostPort/" + string(p.Protocol) + "/" + itoa(int64(p.Port))
		r.Requested = 1
		for _, c := range users {
			r.Holders = append(r.Holders, m.holder(c, 1))
		}
		return
	}
}

func (m *Model) holder(c *modelClaim, amount int64) ledger.Holder {
	return ledger.Holder{Pod: c.pod, Scheduler: c.scheduler, State: c.state, Amount: amount}
}

// StartBind marks a pod's claim Binding and makes one where there is none.
func (m *Model) StartBind(p *ledger.Placement, now time.Time) (ledger.State, *ledger.Rejection) {
	m.Expire(now)
	own := m.find(p.Pod)
	if own == nil {
		v := m.verdict(p.Node, p.Request, false, everything)
		if _, gone := m.gone[p.Pod.UID]; gone && p.Pod.UID != "" {
			v = ledger.Verdict{Reason: ledger.PodGone}
		}
		if v.Reason != ledger.Fits {
			return ledger.NoClaim, m.refuse(p, v, nil)
		}
		m.tell(ledger.ClaimBinding, m.add(newClaim(p, ledger.Binding), false))
		return ledger.NoClaim, nil
	}
	before := own.state
	if own.node != p.Node {
		return before, m.refuse(p, ledger.Verdict{Reason: ledger.ClaimedElsewhere}, own)
	}
	if v := m.verdictInPlace(own, p.Request); v.Reason != ledger.Fits {
		return before, m.refuse(p, v, own)
	}
	m.identify(own, p.Pod.UID)
	if before == ledger.Reserved {
		own.setState(ledger.Binding)
		if !sameRequest(own.request, p.Request) {
			own.request = p.Request
		}
		m.tell(ledger.ClaimBinding, own)
	}
	return before, nil
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

// Expire ends the reservations whose deadline has come, soonest first.
func (m *Model) Expire(now time.Time) int {
	var due []*modelClaim
	for _, c := range m.claims {
		if !c.deadline.IsZero() && !c.deadline.After(now) {
			due = append(due, c)
		}
	}
	slices.SortStableFunc(due, func(a, b *modelClaim) int { return a.deadline.Compare(b.deadline) })
	for _, c := range due {
		m.drop(c, ledger.ClaimExpired)
	}
	return len(due)
}
