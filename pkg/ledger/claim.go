package ledger

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// claim is one pod's share of one node. Released claims are pooled, so nothing
// outside the lock may keep a pointer to one.
type claim struct {
	pod       PodRef
	node      int32
	state     State
	named     bool // present in byName
	away      bool // off the account for the length of a Trial
	priority  int32
	request   *resources.Request
	scheduler string
	hold      *hold // what the pod uses, or nil
	boundBy   *bond // what the pod was bound with, even where that is gone or not seen yet
	devices   *allotment
	version   uint64 // newest resourceVersion observed of the pod, 0 if none

	prev, next *claim // the node's claims
}

// bond is what a pod was bound with: a hold, and the UID of its reservation,
// empty where it is not known.
type bond struct {
	ref HoldRef
	uid types.UID
}

// lookup finds the claim of a pod: by UID, else by name where the claim was made
// before the pod had a UID. It returns nil where there is none. A pod that is
// gone cannot be the one a claim made by name waits for.
func (l *account) lookup(pod PodRef) *claim {
	if pod.UID != "" {
		if c := l.byUID[pod.UID]; c != nil && !c.away {
			return c
		}
	}
	if len(l.byName) == 0 {
		return nil
	}
	c := l.byName[pod.key()]
	if c == nil || c.away {
		return nil
	}
	if pod.UID == "" {
		return c
	}
	if c.pod.UID != "" || l.gone.has(pod.UID) {
		return nil // the name is used by another incarnation of the pod
	}
	return c
}

// identify gives a claim made by name the UID of the pod that came to exist, and
// reports whether it needed one. The caller records that.
func (l *account) identify(c *claim, uid types.UID) bool {
	if c.pod.UID != "" || uid == "" {
		return false
	}
	c.pod.UID = uid
	l.byUID[uid] = c
	return true
}

// adopt identifies a claim and records it.
func (l *account) adopt(c *claim, uid types.UID) {
	if l.identify(c, uid) {
		l.record(ClaimIdentified, c)
	}
}

// newClaim makes a claim in no state and on no node; place puts it somewhere.
func (l *account) newClaim(p *Placement) *claim {
	c := l.pool
	if c != nil {
		l.pool = c.next
		*c = claim{}
	} else {
		c = &claim{}
	}
	c.pod = p.Pod
	c.request = p.Request
	c.scheduler = p.Scheduler
	c.priority = p.Priority
	l.stateCount[NoClaim]++
	return c
}

// index makes the claim findable, by the pod's name too where its callers may know
// no more of it.
func (l *account) index(c *claim, byName bool) {
	if c.pod.UID != "" {
		l.byUID[c.pod.UID] = c
	}
	if byName || c.pod.UID == "" {
		l.byName[c.pod.key()] = c
		c.named = true
	}
}

func (l *account) unindex(c *claim) {
	if c.pod.UID != "" {
		delete(l.byUID, c.pod.UID)
	}
	if c.named {
		if l.byName[c.pod.key()] == c {
			delete(l.byName, c.pod.key())
		}
		c.named = false
	}
}

// setState moves a claim to a state and keeps the counts in step.
func (l *account) setState(c *claim, s State) {
	l.stateCount[c.state]--
	l.stateCount[s]++
	c.state = s
}

// release ends a claim: its room is free when this returns, or, if it used a
// hold, the hold's again.
func (l *account) release(c *claim, why EventType) {
	i, h := c.node, c.hold
	l.retract(c)
	l.unindex(c)
	l.stateCount[c.state]--
	l.record(why, c)
	*c = claim{next: l.pool}
	l.pool = c
	if h != nil {
		l.settle(h, nil)
	}
	l.dropIfEmpty(i)
}
