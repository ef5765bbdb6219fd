package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Reserve decides a plan in one step. What has expired at now makes room first.
// A pod that may use a hold on the node gets its claim there. In mode AllOrNothing nothing is reserved unless everything
// is; the rejections then still tell of every placement that has no room next
// to the others. A dry run changes nothing, not even the revision.
func (l *Ledger) Reserve(plan Plan, now time.Time) Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !plan.DryRun {
		if _, more := l.expire(now); more {
			for k := range plan.Placements {
				l.expireAround(plan.Placements[k].Pod, plan.Placements[k].Node, HoldRef{}, now)
			}
		}
		plan.Without = nil
	}
	absent := l.setAside(plan.Without)
	var one [1]step // most plans are of one pod; it needs no memory then
	steps := one[:0]
	if len(plan.Placements) > len(one) {
		steps = make([]step, 0, len(plan.Placements))
	}
	steps, rejections := l.tryAll(steps, plan.Placements, nil)
	if plan.Mode != Partial && lacksDevices(rejections) {
		steps, rejections = l.tryShared(steps, plan.Placements, rejections)
	}
	granted := len(steps)
	if len(rejections) > 0 && plan.Mode != Partial {
		granted = 0
	}
	if granted == 0 || plan.DryRun {
		l.undoAll(steps)
	} else {
		for k := range steps {
			l.commit(&steps[k], plan.Deadline)
		}
	}
	l.putBack(absent)
	return Result{Granted: granted, Rejections: rejections, Revision: l.revision}
}

// tryAll applies placements without telling anybody. shares are the devices that are meant
// for them, or nil. It appends what it did to steps.
func (l *account) tryAll(steps []step, placements []Placement, shares [][]GivenDevices) ([]step, []Rejection) {
	var rejections []Rejection
	for k := range placements {
		s, rejection := l.tryReserve(&placements[k], shareOf(shares, k))
		if rejection != nil {
			rejections = append(rejections, *rejection)
			continue
		}
		steps = append(steps, s)
	}
	return steps, rejections
}

// tryShared tries a plan once more that lacks devices. It returns no steps, and the same
// rejections, where that does not help.
func (l *account) tryShared(steps []step, placements []Placement, rejections []Rejection) ([]step, []Rejection) {
	l.undoAll(steps)
	asks := make([]deviceAsk, len(placements))
	for k := range placements {
		asks[k] = deviceAsk{placements[k].Node, l.wantsShare(&placements[k])}
	}
	shares := l.shareOut(asks)
	if shares == nil {
		return nil, rejections
	}
	again, refused := l.tryAll(nil, placements, shares)
	if len(refused) == 0 {
		return again, nil
	}
	l.undoAll(again)
	return nil, rejections
}

func (l *account) undoAll(steps []step) {
	for k := len(steps) - 1; k >= 0; k-- {
		l.undo(&steps[k])
	}
}

// step is one granted placement of a plan that can still be undone.
type step struct {
	claim      *claim
	fresh      bool               // the claim was made by this plan
	identified bool               // the claim got its pod's UID
	was        *resources.Request // what an older claim asked for; nil if unchanged
	wasGiven   *allotment         // the devices it had then
	earlier    *claim             // what a fresh claim's name stood for
}

// tryReserve applies one placement without telling anybody.
func (l *account) tryReserve(p *Placement, share []GivenDevices) (step, *Rejection) {
	if c := l.lookup(p.Pod); c != nil {
		return l.tryRenew(c, p)
	}
	if h := l.holdFor(p.Pod); h != nil && h.Node != p.Node {
		rejection := l.reject(p, Verdict{Reason: ClaimedElsewhere}, nil)
		rejection.ClaimedOn = h.Node
		return step{}, rejection
	}
	i, h, rejection := l.admit(p)
	if rejection != nil {
		return step{}, rejection
	}
	c := l.newClaim(p)
	c.hold = h
	c.devices = l.takeShare(i, p.Devices, share, &except{hold: h})
	earlier := l.index(c, true)
	l.place(c, i)
	l.setState(c, Reserved)
	return step{claim: c, fresh: true, earlier: earlier}, nil
}

// tryRenew grants a placement for a pod that has a claim already: on the same
// node it is the same success, as long as a changed request still fits.
func (l *account) tryRenew(c *claim, p *Placement) (step, *Rejection) {
	if l.nodes[c.node].name != p.Node {
		return step{}, l.reject(p, Verdict{Reason: ClaimedElsewhere}, c)
	}
	s := step{claim: c}
	if c.state == Reserved && (!c.request.Equal(p.Request) || !c.asksSameDevices(p.Devices)) {
		if v := l.fitsInPlace(c, p); v.Reason != Fits {
			return step{}, l.reject(p, v, c)
		}
		s.was, s.wasGiven = c.request, c.devices
		a, _ := l.reallot(c, p)
		l.swapRequest(c, p.Request, a)
	}
	s.identified = l.identify(c, p.Pod.UID)
	return s, nil
}

// swapRequest makes a claim ask for something else.
func (l *account) swapRequest(c *claim, req *resources.Request, a *allotment) {
	l.retract(c)
	c.request, c.devices = req, a
	l.place(c, c.node)
}

// admit finds room on the node of a placement for a pod without a claim: in a
// hold it may use, or else in the node's free room.
func (l *account) admit(p *Placement) (int32, *hold, *Rejection) {
	if l.gone.has(p.Pod.UID) {
		return 0, nil, l.reject(p, Verdict{Reason: PodGone}, nil)
	}
	i, ok := l.nodeIndex[p.Node]
	if !ok {
		return 0, nil, l.reject(p, Verdict{Reason: NodeUnknown}, nil)
	}
	h, v := l.fitsAny(i, p, l.candidates(p))
	if v.Reason != Fits {
		return 0, nil, l.reject(p, v, nil)
	}
	return i, h, nil
}

// undo takes a step back as if it had never been.
func (l *account) undo(s *step) {
	c := s.claim
	if s.was != nil {
		l.swapRequest(c, s.was, s.wasGiven)
	}
	if s.identified {
		delete(l.byUID, c.pod.UID)
		c.pod.UID = ""
	}
	if !s.fresh {
		return
	}
	l.retract(c)
	l.unindex(c)
	if s.earlier != nil {
		l.byName[s.earlier.pod.key()] = s.earlier
	}
	l.stateCount[c.state]--
	*c = claim{next: l.pool}
	l.pool = c
}

// commit makes a step last: it gets its deadline and its place in the journal.
func (l *account) commit(s *step, deadline time.Time) {
	c := s.claim
	if s.identified {
		l.record(ClaimIdentified, c)
	}
	if c.state != Reserved {
		return
	}
	// A deadline is only ever put off, and none at all is later than any.
	later := c.expiry.index >= 0 && (deadline.IsZero() || nanos(deadline) > c.expiry.at)
	switch {
	case deadline.IsZero() && later:
		l.deadlines.remove(&c.expiry)
	case !deadline.IsZero() && (later || s.fresh):
		l.deadlines.set(&c.expiry, nanos(deadline))
	}
	if s.fresh || s.was != nil || later {
		l.record(ClaimReserved, c)
	}
}

// aside is a claim taken off the account for the length of a dry run.
type aside struct {
	claim *claim
	named bool // it was made under its name
	found bool // its name stood for it
}

// setAside takes the claims of some pods off the account: until putBack, the
// ledger answers as if those pods were gone.
func (l *account) setAside(pods []types.UID) []aside {
	var absent []aside
	for _, uid := range pods {
		if c := l.byUID[uid]; c != nil {
			absent = append(absent, aside{claim: c, named: c.named, found: c.named && l.byName[c.pod.key()] == c})
			l.retract(c)
			l.unindex(c)
		}
	}
	return absent
}

func (l *account) putBack(absent []aside) {
	for _, a := range absent {
		l.index(a.claim, a.found)
		a.claim.named = a.named
		l.place(a.claim, a.claim.node)
	}
}

// Unreserve gives back reservations. Of each placement only the pod and, where
// not empty, the node and the scheduler count: they must be those of the claim.
// A pod without a claim is a success, so that a repeat is one. Claims that are
// Binding or Bound are refused: only their pods' deletion ends them.
func (l *Ledger) Unreserve(placements []Placement) Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	var result Result
	for k := range placements {
		p := &placements[k]
		c := l.lookup(p.Pod)
		var reason Reason
		switch {
		case c == nil:
		case p.Node != "" && l.nodes[c.node].name != p.Node:
			reason = ClaimedElsewhere
		case p.Scheduler != "" && c.scheduler != "" && c.scheduler != p.Scheduler:
			reason = NotOwner
		case c.state != Reserved:
			reason = BindInFlight
		default:
			l.release(c, ClaimUnreserved)
		}
		if reason != Fits {
			result.Rejections = append(result.Rejections, *l.reject(p, Verdict{Reason: reason}, c))
			continue
		}
		result.Granted++
	}
	result.Revision = l.revision
	return result
}
