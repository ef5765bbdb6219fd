package account

import (
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// ObserveClaim records a state of a ResourceClaim. It decides all grants on earlier states: what is in the
// state was written, and what is not was not. A state that is not newer than the last one changes nothing.
func (a *Account) ObserveClaim(of *resourcev1.ResourceClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()

	c := a.claims[of.UID]
	if c == nil {
		c = newClaim(of)
		a.claims[of.UID] = c
	}
	version := Version(of.ResourceVersion)
	if version != 0 && version <= c.version {
		return
	}
	c.version = max(c.version, version)
	seen, _ := a.read(of)
	decided := slices.ContainsFunc(c.grants, func(g grant) bool { return g.base < version })
	if !decided && equal(seen, c.allocated) {
		return
	}

	before := slices.Concat(slices.Collect(c.allocations)...)
	c.unlink()
	c.allocated = slices.Clone(seen)
	c.grants = slices.DeleteFunc(c.grants, func(g grant) bool { return g.base < version })
	c.link()
	a.tidy(c, before)
}

// ForgetClaim records that a ResourceClaim is gone, and with it what it had and might have got.
func (a *Account) ForgetClaim(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()

	c := a.claims[uid]
	if c == nil {
		return
	}
	before := slices.Concat(slices.Collect(c.allocations)...)
	c.unlink()
	c.version, c.allocated, c.grants = 0, nil, nil
	a.tidy(c, before)
}

// GiveUp drops the grants of a claim that were made before a time and are not seen yet. The time has to be so long ago
// that the API server has ended the requests that were waiting for them, and the claim must have been read since: a
// write that was made and not seen would be forgotten.
func (a *Account) GiveUp(uid types.UID, before time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()

	c := a.claims[uid]
	if c == nil || !slices.ContainsFunc(c.grants, func(g grant) bool { return g.at.Before(before) }) {
		return
	}
	held := slices.Concat(slices.Collect(c.allocations)...)
	c.unlink()
	c.grants = slices.DeleteFunc(c.grants, func(g grant) bool { return g.at.Before(before) })
	c.link()
	a.tidy(c, held)
}

// tidy drops what nothing is known of any more, after a claim has lost some of what it had.
func (a *Account) tidy(c *claim, had []holding) {
	if c.version == 0 && len(c.allocated) == 0 && len(c.grants) == 0 {
		delete(a.claims, c.uid)
	}
	a.tidyDevices(had)
}

func (a *Account) tidyDevices(had []holding) {
	for i := range had {
		d := had[i].device
		d.pool.dropUnused(d)
		a.dropUnused(d.pool)
	}
}

// read returns what a claim has of each device by its status, and what is wrong with that. What it returns is
// overwritten by the next call. Its devices have entries.
func (a *Account) read(of *resourcev1.ResourceClaim) ([]holding, *Refusal) {
	var refusal *Refusal
	list := a.scratch[:0]
	if of.Status.Allocation != nil {
		results := of.Status.Allocation.Devices.Results
		for i := range results {
			if r := &results[i]; !ptr.Deref(r.AdminAccess, false) {
				var wrong *Refusal
				if list, wrong = a.readResult(list, of, r); refusal == nil {
					refusal = wrong
				}
			}
		}
	}
	a.scratch = list
	return list, refusal
}

func (a *Account) readResult(list []holding, of *resourcev1.ResourceClaim,
	r *resourcev1.DeviceRequestAllocationResult,
) ([]holding, *Refusal) {
	d := a.poolOf(poolKey{r.Driver, r.Pool}).deviceOf(r.Device)
	i := slices.IndexFunc(list, func(h holding) bool { return h.device == d })
	if i < 0 {
		i = len(list)
		list = append(list, holding{device: d})
	}
	h := &list[i]
	wrong := h.whole || (h.shares > 0 && r.ShareID == nil) // somebody who has it whole has nothing else of it
	if r.ShareID == nil {
		h.whole = true
	} else {
		h.shares++
		for name, quantity := range r.ConsumedCapacity {
			if quantity.Sign() < 0 { // the API server lets it pass
				wrong = true
			} else {
				h.consumed.entry(name).Add(quantity)
			}
		}
	}
	if wrong {
		return list, &Refusal{Device: d.key(), Reason: Malformed, Owners: []Owner{newClaim(of).owner()}}
	}
	return list, nil
}
