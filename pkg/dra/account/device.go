package account

import (
	"cmp"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// device is a device that is in a slice, or that somebody has.
type device struct {
	pool      *pool
	name      string
	slice     *resourcev1.ResourceSlice // nil where none that counts names it
	published *resourcev1.Device        // in the slice
	charges   []charge
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
	return Device{Driver: d.pool.key.driver, Pool: d.pool.key.name, Name: d.name}
}

// node returns the node that the device is on, where its slice names one.
func (d *device) node() string {
	if d.published == nil {
		return ""
	}
	return cmp.Or(ptr.Deref(d.published.NodeName, ""), ptr.Deref(d.slice.Spec.NodeName, ""))
}

func (d *device) shareable() bool {
	return d.published != nil && ptr.Deref(d.published.AllowMultipleAllocations, false)
}

// charge takes the device's counters, or gives them back, as count is 1 or -1. A device charges them once, however many
// have shares of it. What a device takes that is in no slice is not known.
func (d *device) charge(count int) {
	if d.published == nil {
		d.pool.unpublished += count
	}
	for i := range d.charges {
		if c := &d.charges[i]; count > 0 {
			c.counter.used.Add(c.quantity)
		} else {
			c.counter.used.Sub(c.quantity)
		}
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
			d.charge(1)
		}
	}
	o := &d.owners[i]
	o.whole = o.whole || h.whole
	if len(h.consumed) > 0 {
		d.used.each(o.consumed, (*resource.Quantity).Sub)
		o.consumed.each(h.consumed, raise)
		d.used.each(o.consumed, (*resource.Quantity).Add)
	}
}

// leave takes all away that the claim has of the device.
func (d *device) leave(c *claim) {
	i := slices.IndexFunc(d.owners, func(o owner) bool { return o.claim == c })
	if i < 0 {
		return
	}
	d.used.each(d.owners[i].consumed, (*resource.Quantity).Sub)
	d.owners = slices.Delete(d.owners, i, i+1)
	if len(d.owners) == 0 {
		d.used = nil
		d.charge(-1)
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
