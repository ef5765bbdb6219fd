package ledger

import (
	"slices"
	"time"
)

// Grant tells what StartBind found and gave.
type Grant struct {
	// Before is the state the pod's claim was in: Binding where another bind of
	// the pod is in flight, Bound where the pod is on that node already.
	Before State
	// Hold is the hold the pod uses, or empty. The binding has to say so.
	Hold HoldRef
	// Devices are the IDs of the devices the pod was given, claim by claim: separated
	// by commas they are the value of the annotation extended-resources, which the
	// binding has to carry. The same for every repeat.
	Devices []string
}

// StartBind reserves room for a pod, unless it is reserved already, and marks it
// Binding, in one step: the caller is about to bind it and must call Confirm or
// BindFailed when it knows how that ended. The first of the pod's holds on the
// node that it can use is used; else the node's free room.
//
// A reservation whose node has vanished or lost room since is refused: the
// kubelet would reject the pod.
func (l *Ledger) StartBind(p *Placement, now time.Time) (Grant, *Rejection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, more := l.expire(now); more {
		l.expireAround(p.Pod, p.Node, HoldRef{}, now)
	}
	c := l.lookup(p.Pod)
	if c == nil {
		i, h, rejection := l.admitBind(p)
		if rejection != nil {
			return Grant{}, rejection
		}
		c = l.newClaim(p)
		c.hold = h
		c.devices = l.allot(i, p.Devices, &except{hold: h})
		l.index(c, false)
		l.place(c, i)
		l.setState(c, Binding)
		l.record(ClaimBinding, c)
		return Grant{Hold: c.holdRef(), Devices: idsOf(c.given())}, nil
	}
	grant := Grant{Before: c.state, Hold: c.holdRef()}
	if l.nodes[c.node].name != p.Node {
		return grant, l.reject(p, Verdict{Reason: ClaimedElsewhere}, c)
	}
	if v := l.fitsInPlace(c, p); v.Reason != Fits {
		return grant, l.reject(p, v, c)
	}
	l.adopt(c, p.Pod.UID)
	if grant.Before == Reserved {
		if a, same := l.reallot(c, p); !same || !c.request.Equal(p.Request) {
			l.swapRequest(c, p.Request, a)
		}
		l.setState(c, Binding)
		l.record(ClaimBinding, c)
	}
	grant.Devices = idsOf(c.given())
	return grant, nil
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
	for _, h := range slices.Clone(l.holdsByPod[c.pod.key()]) {
		if h != used && h.isFor(c.pod) {
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
