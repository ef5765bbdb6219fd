package account

import (
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// MaxClaimSize is how many bytes a claim may have, in JSON, to be given devices. The parameters of 32 requests, 10 KiB
// each, and those of 64 that an allocation may have are less. A claim of 1.5 MiB may be as much as etcd takes at once
// (its --max-request-bytes), and then nobody could withdraw what was granted.
const MaxClaimSize = 1 << 20

// RefuseLarge returns why a claim that is larger than MaxClaimSize is not given the devices in its status, nil where it
// has them already.
func (a *Account) RefuseLarge(of *resourcev1.ResourceClaim, base int64) *Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted, refusal := a.read(of)
	if c := a.claims[of.UID]; len(wanted) == 0 || c != nil && base <= c.version && equal(wanted, c.allocated) {
		return nil
	}
	if refusal == nil {
		refusal = &Refusal{Device: wanted[0].device.key(), Reason: TooLarge, Owners: []Owner{newClaim(of).owner()}}
	}
	a.tidyDevices(wanted)
	return refusal
}

// Grant decides whether a write may allocate to a claim the devices that are in its status, all of them or none.
// base is the resourceVersion of the claim that the write is made on, see Version. What is granted is the
// claim's until the watch shows how the write ended. Asking again is no second grant.
func (a *Account) Grant(of *resourcev1.ResourceClaim, base int64, now time.Time) *Refusal {
	return a.decide(of, base, now, false)
}

// Try says why Grant would refuse, and grants nothing.
func (a *Account) Try(of *resourcev1.ResourceClaim, base int64) *Refusal {
	return a.decide(of, base, time.Time{}, true)
}

func (a *Account) decide(of *resourcev1.ResourceClaim, base int64, now time.Time, dry bool) *Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()

	wanted, refusal := a.read(of)
	if len(wanted) == 0 {
		return nil
	}
	if a.stale {
		for i := range wanted { // before grant: refresh would drop devices that it takes from the claim for a moment
			wanted[i].device.pool.refresh()
		}
	}
	if refusal == nil {
		refusal = a.grant(of, wanted, base, now, dry)
	}
	if refusal != nil || dry {
		a.tidyDevices(wanted)
	}
	return refusal
}

func (a *Account) grant(of *resourcev1.ResourceClaim, wanted []holding, base int64, now time.Time, dry bool) *Refusal {
	c := a.claims[of.UID]
	if c == nil {
		c = newClaim(of)
	}
	if base <= 0 || base < c.version {
		if base > 0 && equal(wanted, c.allocated) {
			return nil // an answer that the API server did not get, to a write that was made
		}
		return &Refusal{Device: wanted[0].device.key(), Reason: Outdated, Owners: []Owner{c.owner()}}
	}

	// Of this claim's allocations only one can be true, so the others are no obstacle.
	c.unlink()
	refusal := c.take(wanted)
	if refusal == nil && !dry {
		c.addGrant(wanted, base, now)
		a.claims[c.uid] = c
	}
	c.link()
	return refusal
}

// addGrant remembers a grant. The same on another base is the same grant: it is decided when both are.
func (c *claim) addGrant(wanted []holding, base int64, now time.Time) {
	same := slices.IndexFunc(c.grants, func(g grant) bool { return equal(g.holdings, wanted) })
	if same < 0 {
		c.grants = append(c.grants, grant{holdings: slices.Clone(wanted), base: base, at: now})
		return
	}
	g := &c.grants[same]
	g.base = max(g.base, base)
	if g.at.Before(now) {
		g.at = now
	}
}

// take returns why the claim, which has nothing just now, cannot have all of wanted. It has nothing afterwards either.
func (c *claim) take(wanted []holding) *Refusal {
	var refusal *Refusal
	taken := 0
	for ; taken < len(wanted) && refusal == nil; taken++ {
		if refusal = wanted[taken].check(); refusal == nil {
			wanted[taken].device.join(c, &wanted[taken])
		}
	}
	for i := range wanted[:taken] {
		wanted[i].device.leave(c)
	}
	return refusal
}

// check says why a claim that has nothing of a device cannot have this.
func (h *holding) check() *Refusal {
	d := h.device
	for i := range d.owners {
		if h.whole || d.owners[i].whole {
			return d.inUse()
		}
	}
	if h.shares > 0 {
		if refusal := h.checkShare(); refusal != nil {
			return refusal
		}
	}
	if len(d.owners) > 0 {
		return nil // its counters are charged already
	}
	return d.checkCounters()
}

func (h *holding) checkShare() *Refusal {
	d := h.device
	switch {
	case d.published == nil:
		return d.refuse(NotKnown)
	case !d.shareable():
		return d.refuse(NotShareable)
	}
	var first *Refusal // by name
	for name, limit := range d.published.Capacity {
		used, asked := d.used.value(name), h.consumed.value(name)
		if exceeds(used, asked, limit.Value) && (first == nil || string(name) < first.Resource) {
			first = d.exceeded(SharedCapacityExceeded, string(name), d.ownerList(false), used, asked, limit.Value)
		}
	}
	if first != nil {
		return first
	}
	for i := range h.consumed {
		asked := &h.consumed[i]
		if _, known := d.published.Capacity[asked.name]; !known && !asked.quantity.IsZero() {
			return d.refuse(NotKnown)
		}
	}
	return nil
}

// checkCounters says why a device that nobody has cannot charge its counters.
func (d *device) checkCounters() *Refusal {
	if d.published == nil {
		return d.refuse(NotKnown)
	}
	if len(d.charges) > 0 && d.pool.unpublished > 0 {
		refusal := d.refuse(PoolIncomplete)
		refusal.Owners = d.pool.ownersOf(nil, false)
		return refusal
	}
	if len(d.charges) > 0 && !d.pool.complete {
		return d.refuse(PoolIncomplete)
	}
	for i := range d.charges {
		c := &d.charges[i]
		if len(c.counter.limits) != 1 {
			return d.refuse(PoolIncomplete)
		}
		if limit := c.counter.limits[0]; !c.quantity.IsZero() && exceeds(c.counter.used, c.quantity, limit) {
			return d.exceeded(CountersExceeded, c.counter.key.String(), d.pool.ownersOf(c.counter, false), c.counter.used,
				c.quantity, limit)
		}
	}
	return nil
}

func exceeds(used, asked, limit resource.Quantity) bool {
	sum := used.DeepCopy()
	sum.Add(asked)
	return sum.Cmp(limit) > 0
}
