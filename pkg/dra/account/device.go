package account

import (
	"slices"
	"unique"
)

// device is a device that is in a slice, or that somebody has.
type device struct {
	pool      *pool
	name      unique.Handle[string]
	published *publication // nil where no slice names it
	owners    []owner
	used      amounts // the sum of what its owners consume
}

// owner is what one claim may have of a device: the most over its allocations.
type owner struct {
	claim    *claim
	whole    bool
	consumed amounts
}

func (d *device) key() Device {
	return Device{Driver: d.pool.key.driver, Pool: d.pool.key.name, Name: d.name.Value()}
}

// node returns the node that the device is on, where its slice names one.
func (d *device) node() string {
	if d.published == nil {
		return ""
	}
	if d.published.node != "" {
		return d.published.node
	}
	return d.published.slice.node
}

// publish makes another slice say what the device is, or none.
func (d *device) publish(pub *publication) {
	if len(d.owners) > 0 {
		d.discharge()
	}
	d.published = pub
	if len(d.owners) > 0 {
		d.charge()
	}
}

// charge takes the device's counters. A device charges them once, however many have shares of it. What a device takes
// that is in no slice is not known.
func (d *device) charge() {
	if d.published == nil {
		d.pool.unpublished++
		return
	}
	for i := range d.published.charges {
		c := &d.published.charges[i]
		c.counter.used.Add(c.quantity)
	}
}

func (d *device) discharge() {
	if d.published == nil {
		d.pool.unpublished--
		return
	}
	for i := range d.published.charges {
		c := &d.published.charges[i]
		c.counter.used.Sub(c.quantity)
	}
}

// join makes a claim an owner of its holding. Another allocation of the claim may be of the same device: only
// one of them can be true, so what counts is the most, not the sum.
func (d *device) join(c *claim, h *holding) {
	i := slices.IndexFunc(d.owners, func(o owner) bool { return o.claim == c })
	if i < 0 {
		i = len(d.owners)
		d.owners = append(d.owners, owner{claim: c})
		if i == 0 {
			d.charge()
		}
	}
	o := &d.owners[i]
	o.whole = o.whole || h.whole
	if len(h.consumed) > 0 {
		d.used.sub(o.consumed)
		o.consumed.raise(h.consumed)
		d.used.add(o.consumed)
	}
}

// leave takes all away that the claim has of the device.
func (d *device) leave(c *claim) {
	i := slices.IndexFunc(d.owners, func(o owner) bool { return o.claim == c })
	if i < 0 {
		return
	}
	d.used.sub(d.owners[i].consumed)
	d.owners = slices.Delete(d.owners, i, i+1)
	if len(d.owners) == 0 {
		d.used = nil
		d.discharge()
	}
}

// link makes the claim an owner of all that it may have.
func (c *claim) link() {
	for holdings := range c.allocations {
		for i := range holdings {
			holdings[i].device.join(c, &holdings[i])
		}
	}
}

// unlink is the reverse of link. Devices stay in their pools, for link to find them.
func (c *claim) unlink() {
	for holdings := range c.allocations {
		for i := range holdings {
			holdings[i].device.leave(c)
		}
	}
}
