package ledger

import "time"

// Grant is what StartBind found and gave.
type Grant struct {
	// Before is the state the pod's allocation was in: Binding where another bind of the pod is in flight, Bound where
	// the pod is on that node already, NoAllocation where this bind is the first.
	Before State
	// Slot is the slot the pod uses, or empty. The binding has to name it.
	Slot SlotRef
	// Caller is the one whose budget the pod counts in: it reserved capacity for the pod in memory, or began to bind it.
	Caller string
	// Devices are the devices the pod was given, claim by claim: the binding has to carry them in the annotation
	// extended-resources. The same for every repeat. They must not be changed.
	Devices []GivenDevices
}

// StartBind makes a pod Binding, in one step with finding capacity for it: the caller is about to bind it and must call
// Confirm or BindFailed when it knows how that ended. What is kept for the pod in memory turns into its allocation;
// else the first of the pod's slots on the node that it can use is used; else the node's free capacity.
//
// A slot in memory on a node that has vanished or lost capacity since is refused: the kubelet would reject the pod.
func (l *Ledger) StartBind(p *Placement, now time.Time) (Grant, *Rejection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireFor(p, now)
	return l.startBind(p)
}

func (l *account) startBind(p *Placement) (Grant, *Rejection) {
	own := l.find(p.Pod)
	switch {
	case own == nil:
	case l.names[own.node] != p.Node && own.movable:
		return l.bindElsewhere(own, p)
	case l.names[own.node] != p.Node:
		return own.grant(), l.rejectElsewhere(p, own)
	case own.isAllocation():
		grant := own.grant()
		grant.Devices = own.given()
		l.adopt(own, p.Pod.UID)
		return grant, nil
	default: // what is kept for the pod in memory there
		s, rejection := l.tryBound(p)
		if rejection != nil {
			return Grant{}, rejection
		}
		return l.turnStep(&s, p), nil
	}
	i, h, rejection := l.admitBind(p)
	if rejection != nil {
		return Grant{}, rejection
	}
	return l.begin(p, i, h), nil
}

// begin makes the allocation of a pod that was admitted on node i.
func (l *account) begin(p *Placement, i int32, h *entry) Grant {
	c := l.newAllocation(p)
	c.within, c.devices = h, l.giveCounted(i, p.Request, l.allot(i, p.Devices, h), h)
	l.put(c, i)
	l.record(AllocationBinding, c, c.pod)
	return Grant{Slot: h.ref(), Caller: c.caller, Devices: c.given()}
}

// bindElsewhere binds a pod on another node than that of its movable slot, which ends. Where there
// is no capacity the slot stays.
func (l *account) bindElsewhere(own *entry, p *Placement) (Grant, *Rejection) {
	p = own.named(p)
	l.setAside(own)
	i, h, rejection := l.admitBind(p)
	if rejection != nil {
		l.putBack(own)
		rejection.AllocatedOn = l.names[own.node]
		return Grant{}, rejection
	}
	l.endDetached(own, SlotReleased, PodRef{})
	return l.begin(p, i, h), nil
}

// named returns a placement with the UID of the entry's pod, also where it names none: there may be others of the name.
func (e *entry) named(p *Placement) *Placement {
	if p.Pod.UID != "" || e.pod.UID == "" {
		return p
	}
	at := *p
	at.Pod.UID = e.pod.UID
	return &at
}

// setAside takes a slot off the account, as if it were not there, until putBack or endDetached.
func (l *account) setAside(e *entry) {
	l.detach(e)
	e.away = true
}

func (l *account) putBack(e *entry) {
	e.away = false
	l.attach(e)
}

// grant returns what was given before: nothing for a slot in memory.
func (e *entry) grant() Grant {
	if !e.isAllocation() {
		return Grant{}
	}
	return Grant{Before: e.state, Slot: e.within.ref(), Caller: e.caller}
}

// ChangeBind makes the allocation of a pod that is Binding count for what is asked now, not for what it was granted: in
// one step, so that what it has is never free for anybody else. It stays on its node, in the slot that it uses, and
// keeps its devices as long as it asks for the same. Where there is no capacity, it stays as it is, because what was
// allowed may still be carried out. For a pod without such an allocation on the node, ChangeBind is StartBind.
func (l *Ledger) ChangeBind(p *Placement, now time.Time) (Grant, *Rejection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireFor(p, now)
	own := l.find(p.Pod)
	if own == nil || own.state != Binding || l.names[own.node] != p.Node {
		return l.startBind(p)
	}
	l.detach(own)
	if v := l.fitInPlace(own, p); v.Reason != Fits {
		rejection := l.reject(p, v, own)
		l.attach(own)
		return own.grant(), rejection
	}
	own.devices = l.giveCounted(own.node, p.Request, l.allotInPlace(own, p.Devices), own.within)
	own.request, own.growth = p.Request, nil
	l.attach(own)
	l.adopt(own, p.Pod.UID)
	l.record(AllocationResized, own, own.pod)
	grant := own.grant()
	grant.Devices = own.given()
	return grant, nil
}

// admitBind admits a pod, if the placement allows that by ending preemptible slots.
func (l *account) admitBind(p *Placement) (int32, *entry, *Rejection) {
	i, h, rejection := l.admit(p)
	if rejection == nil || !p.Preempt || len(l.slots) == 0 {
		return i, h, rejection
	}
	if v := (Verdict{Reason: rejection.Reason}); !v.Reason.OfCapacity() && !v.overLimit() {
		return i, h, rejection
	}
	if !l.preempt(l.nodeIndex[p.Node], p) {
		return i, h, rejection
	}
	return l.admit(p)
}

// Confirm records that the API server has bound the pod to the node. It reports whether the pod has an allocation
// there: false when an observation was faster and the pod is gone or elsewhere already.
func (l *Ledger) Confirm(pod PodRef, nodeName string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.allocationOf(pod)
	if c == nil || l.names[c.node] != nodeName {
		return false
	}
	l.adopt(c, pod.UID)
	if c.state != Bound {
		l.bound(c)
	}
	return true
}

// bound turns an allocation Bound: a slot it used up ends, and so do other slots that were kept for its pod alone.
func (l *account) bound(c *entry) {
	l.setState(c, Bound)
	l.record(AllocationBound, c, c.pod)
	l.endSlotsOfBound(c)
}

func (l *account) endSlotsOfBound(c *entry) {
	l.endNomination(c.pod)
	used := c.within
	if used != nil {
		c.boundBy = &bond{used.slot.ref, used.slot.uid}
		l.settle(used, c)
	}
	first := c.sameName // an allocation comes first of what goes by its name
	if !c.listed {
		first = l.named[c.pod.key()]
	}
	for _, e := range first.keptFor(c.pod) {
		if e != used {
			l.endSlot(e, SlotReleased, PodRef{})
		}
	}
}

// PodsOn returns the pods that are bound, or being bound, to a node.
func (l Reader) PodsOn(nodeName string) (pods []PodRef) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if i, ok := l.nodeIndex[nodeName]; ok {
		for e := l.nodes[i].first; e != nil; e = e.next {
			if e.isAllocation() {
				pods = append(pods, e.pod)
			}
		}
	}
	return pods
}

// BindFailed gives back the capacity of a bind that definitely failed. It reports
// whether there was such a bind in flight on that node.
func (l *Ledger) BindFailed(pod PodRef, nodeName string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.allocationOf(pod)
	if c == nil || c.state != Binding || l.names[c.node] != nodeName {
		return false
	}
	l.release(c, AllocationBindFailed)
	return true
}
