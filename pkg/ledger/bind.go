package ledger

import "time"

// Grant tells what StartBind found and gave.
type Grant struct {
	// Before is the state the pod's claim was in: Binding where another bind of
	// the pod is in flight, Bound where the pod is on that node already, NoClaim where
	// this bind is the first.
	Before State
	// Hold is the hold the pod uses, or empty. The binding has to say so.
	Hold HoldRef
	// Devices are the IDs of the devices the pod was given, claim by claim: separated
	// by commas they are the value of the annotation extended-resources, which the
	// binding has to carry. The same for every repeat.
	Devices []string
}

// StartBind makes a pod Binding, in one step with finding room for it: the caller is
// about to bind it and must call Confirm or BindFailed when it knows how that ended. What
// is kept for the pod in memory turns into its claim; else the first of the pod's holds on
// the node that it can use is used; else the node's free room.
//
// A slot in memory on a node that has vanished or lost room since is refused: the kubelet
// would reject the pod.
func (l *Ledger) StartBind(p *Placement, now time.Time) (Grant, *Rejection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, more := l.expire(now); more {
		l.expireAround(p.Pod, p.Node, HoldRef{}, now)
	}
	if c := l.lookup(p.Pod); c != nil {
		grant := Grant{Before: c.state, Hold: c.holdRef()}
		if on := l.nodes[c.node].name; on != p.Node {
			return grant, l.rejectElsewhere(p, on)
		}
		l.adopt(c, p.Pod.UID)
		grant.Devices = idsOf(c.given())
		return grant, nil
	}
	if g := l.inMemory(p.Pod); g != nil {
		return l.redeem(g, p)
	}
	i, h, rejection := l.admitBind(p)
	if rejection != nil {
		return Grant{}, rejection
	}
	c := l.newClaim(p)
	c.hold = h
	c.devices = l.allot(i, p.Devices, h)
	return l.beginBind(c, i, false), nil
}

// beginBind puts a new claim on a node's account.
func (l *account) beginBind(c *claim, i int32, byName bool) Grant {
	l.index(c, byName)
	l.place(c, i)
	l.setState(c, Binding)
	l.record(ClaimBinding, c)
	return Grant{Hold: c.holdRef(), Devices: idsOf(c.given())}
}

// redeem turns the slot that is kept for a pod in memory into the pod's claim.
func (l *account) redeem(g *hold, p *Placement) (Grant, *Rejection) {
	if g.Node != p.Node {
		return Grant{}, l.rejectElsewhere(p, g.Node)
	}
	at := l.detach(g)
	if v := l.fitInPlace(g, p); v.Reason != Fits {
		rejection := l.reject(p, v, g)
		l.attach(g, at)
		return Grant{}, rejection
	}
	devices, i := l.allotInPlace(g, p.Devices), g.node
	c := l.turn(g, p)
	c.devices = devices
	return l.beginBind(c, i, true), nil
}

// turn makes the claim that a slot in memory, which is off the account, turns into.
func (l *account) turn(g *hold, p *Placement) *claim {
	if g.identify(p.Pod) {
		l.recordHold(HoldIdentified, g, g.Pod)
	}
	c := l.newClaim(p)
	c.pod.UID, c.scheduler, c.priority, c.hold = g.Pod.UID, g.Scheduler, g.Priority, g.within
	if g.Devices != nil || g.given != nil {
		c.devices = &allotment{request: g.Devices, given: g.given}
	}
	l.discard(g)
	l.recycle(g)
	return c
}

// admitBind admits a pod, if the placement allows that by ending preemptible
// holds.
func (l *account) admitBind(p *Placement) (int32, *hold, *Rejection) {
	i, h, rejection := l.admit(p)
	if rejection == nil || !p.Preempt || len(l.holds) == 0 {
		return i, h, rejection
	}
	if v := (Verdict{Reason: rejection.Reason}); !v.shortOfRoom() {
		return i, h, rejection
	}
	if !l.preempt(l.nodeIndex[p.Node], p) {
		return i, h, rejection
	}
	return l.admit(p)
}

// Confirm records that the API server has bound the pod to the node. It reports
// whether the pod has a claim there: false when an observation was faster and
// the pod is gone or elsewhere already.
func (l *Ledger) Confirm(pod PodRef, nodeName string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.lookup(pod)
	if c == nil || l.nodes[c.node].name != nodeName {
		return false
	}
	l.adopt(c, pod.UID)
	if c.state != Bound {
		l.bound(c)
	}
	return true
}

// bound turns a claim Bound: a hold it used up ends, and so do other holds that
// were kept for its pod alone.
func (l *account) bound(c *claim) {
	l.setState(c, Bound)
	l.record(ClaimBound, c)
	l.endHoldsOfBound(c)
}

func (l *account) endHoldsOfBound(c *claim) {
	used := c.hold
	if used != nil {
		c.boundBy = &bond{used.Ref, used.UID}
		l.settle(used, c)
	}
	if len(l.holdsByPod) == 0 {
		return
	}
	for _, h := range l.keptFor(c.pod) {
		if h != used {
			l.endHold(h, HoldReleased, PodRef{})
		}
	}
}

// BindFailed gives back the room of a bind that definitely failed. It reports
// whether there was such a bind in flight on that node.
func (l *Ledger) BindFailed(pod PodRef, nodeName string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.lookup(pod)
	if c == nil || c.state != Binding || l.nodes[c.node].name != nodeName {
		return false
	}
	l.release(c, ClaimBindFailed)
	return true
}
