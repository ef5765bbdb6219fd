package account

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// Double is a device of which more is allocated than there is.
type Double struct {
	Device   Device // without a name where it is a counter of the pool
	Reason   Reason // Doubled, SharedCapacityExceeded or CountersExceeded
	Resource string // the name of the capacity, or set/counter
	Owners   []Owner
}

// Doubles returns, by device, of what more is allocated than there is. Grants that were not seen yet are not
// counted: they were given only where they fit. What bypassed the account counts when it is allocated.
func (a *Account) Doubles() []Double {
	defer a.reading()()

	var all []Double
	for _, p := range a.pools {
		for _, d := range p.devices {
			all = d.appendDoubles(all)
		}
		all = p.appendDoubles(all)
	}
	slices.SortFunc(all, func(x, y Double) int {
		return cmp.Or(x.Device.compare(y.Device), cmp.Compare(x.Resource, y.Resource))
	})
	return all
}

// allocation returns what the owner has of a device by its claim's last state.
func (o *owner) allocation(d *device) *holding {
	for i := range o.claim.allocated {
		if h := &o.claim.allocated[i]; h.device == d {
			return h
		}
	}
	return nil
}

// doubled says whether more claims have the device than may. Shares are not added up here.
func (d *device) doubled() bool {
	if len(d.owners) < 2 {
		return false
	}
	owners, exclusive := 0, d.published != nil && !d.shareable()
	for i := range d.owners {
		if h := d.owners[i].allocation(d); h != nil {
			owners++
			exclusive = exclusive || h.whole
		}
	}
	return owners > 1 && exclusive
}

func (d *device) appendDoubles(all []Double) []Double {
	if d.doubled() {
		return append(all, Double{Device: d.key(), Reason: Doubled, Owners: d.ownerList(true)})
	}
	if len(d.used) == 0 || !d.shareable() {
		return all
	}
	var sums amounts
	for i := range d.owners {
		if h := d.owners[i].allocation(d); h != nil {
			sums.each(h.consumed, (*resource.Quantity).Add)
		}
	}
	for name, limit := range d.published.Capacity {
		if sum := sums.value(name); sum.Cmp(limit.Value) > 0 {
			all = append(all, Double{
				Device: d.key(), Reason: SharedCapacityExceeded, Resource: string(name), Owners: d.ownerList(true),
			})
		}
	}
	return all
}

// appendDoubles appends the counters of a pool of which more is used than there is.
func (p *pool) appendDoubles(all []Double) []Double {
	if len(p.counters) == 0 {
		return all
	}
	sums := map[*counter]*resource.Quantity{}
	for _, d := range p.devices {
		if len(d.charges) == 0 || !slices.ContainsFunc(d.owners, func(o owner) bool { return o.allocation(d) != nil }) {
			continue
		}
		for i := range d.charges {
			c := &d.charges[i]
			if sums[c.counter] == nil {
				sums[c.counter] = &resource.Quantity{}
			}
			sums[c.counter].Add(c.quantity)
		}
	}
	for c, sum := range sums {
		if len(c.limits) == 1 && sum.Cmp(c.limits[0]) > 0 {
			all = append(all, Double{
				Device: Device{Driver: p.key.driver, Pool: p.key.name}, Reason: CountersExceeded, Resource: c.key.String(),
				Owners: p.ownersOf(c, true),
			})
		}
	}
	return all
}

// State is how an owner has a device.
type State string

// The states.
const (
	// Granted: a write that allocates the device was allowed, and was not seen yet.
	Granted State = "Granted"
	// Allocated: the claim's status says so.
	Allocated State = "Allocated"
)

// DeviceState is a device and its owners.
type DeviceState struct {
	Device
	Node      string // where its slice names one
	Published bool   // whether a slice names it
	Shareable bool   // whether it allows multiple allocations
	Double    bool   // whether more of it is allocated than there is; see Doubles
	Owners    []DeviceOwner
}

// DeviceOwner is an owner of a device, and how it has the device.
type DeviceOwner struct {
	Owner
	State State
}

// AppendDevices appends all devices, by driver, pool and name.
func (a *Account) AppendDevices(to []DeviceState) []DeviceState {
	defer a.reading()()

	// Sorting pool by pool moves much less than sorting all devices.
	pools := slices.SortedFunc(maps.Values(a.pools), func(x, y *pool) int {
		return cmp.Or(cmp.Compare(x.key.driver, y.key.driver), cmp.Compare(x.key.name, y.key.name))
	})
	for _, p := range pools {
		from := len(to)
		for _, d := range p.devices {
			to = append(to, d.state())
		}
		slices.SortFunc(to[from:], func(x, y DeviceState) int { return cmp.Compare(x.Name, y.Name) })
	}
	return to
}

// OnNode returns the devices whose slice names a node, by driver, pool and name.
func (a *Account) OnNode(node string) (on []DeviceState) {
	defer a.reading()()

	for name, p := range a.slices {
		s := p.slices[name]
		if by := ptr.Deref(s.Spec.NodeName, ""); by != "" && by != node {
			continue
		}
		for i := range s.Spec.Devices {
			published := &s.Spec.Devices[i]
			if d := p.devices[published.Name]; d != nil && d.published == published && d.node() == node {
				on = append(on, d.state())
			}
		}
	}
	slices.SortFunc(on, func(x, y DeviceState) int { return x.compare(y.Device) })
	return on
}

func (d *device) state() DeviceState {
	s := DeviceState{
		Device: d.key(), Node: d.node(), Published: d.published != nil,
		Shareable: d.shareable(), Double: len(d.appendDoubles(nil)) > 0,
	}
	for i := range d.owners {
		o := &d.owners[i]
		made := DeviceOwner{Owner: o.claim.owner(), State: Granted}
		if o.allocation(d) != nil {
			made.State = Allocated
		}
		s.Owners = append(s.Owners, made)
	}
	slices.SortFunc(s.Owners, func(x, y DeviceOwner) int { return x.compare(y.Owner) })
	return s
}
