package account

import (
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

type poolKey struct{ driver, name string }

// pool is the devices of one driver that are numbered together. Only the slices of the highest generation say what
// there is. A node may write slices for any pool, if they are of that node: in a pool that is named after a node that
// has slices there, as drivers of nodes do it, the slices of other nodes do not count.
type pool struct {
	key     poolKey
	slices  map[string]*resourcev1.ResourceSlice // of every generation
	devices map[string]*device

	// stale says that slices have changed since refresh made the rest, and what devices have of slices.
	stale       bool
	complete    bool // all slices are there: each of them says how many there are; kube-scheduler needs that, too
	counters    map[counterKey]*counter
	unpublished int // devices that somebody has and that are in no slice that counts
}

type counterKey struct{ set, name string }

func (k counterKey) String() string { return k.set + "/" + k.name }

// counter is a shared counter of a pool.
type counter struct {
	key    counterKey
	limits []resource.Quantity // by the slices that count: one, or they contradict each other
	used   resource.Quantity   // by the devices that somebody has
}

// charge is what a device takes of a shared counter while somebody has it.
type charge struct {
	counter  *counter
	quantity resource.Quantity
}

// ObserveSlice records a ResourceSlice as it is now. The account keeps it, so nobody may change it afterwards. What it
// says is read when that is next asked for: many slices of a pool often change one after the other.
func (a *Account) ObserveSlice(s *resourcev1.ResourceSlice) {
	a.mu.Lock()
	defer a.mu.Unlock()

	p := a.poolOf(poolKey{s.Spec.Driver, s.Spec.Pool.Name})
	if old := a.slices[s.Name]; old != nil && old != p {
		delete(old.slices, s.Name)
		old.stale = true
	}
	a.slices[s.Name], p.slices[s.Name] = p, s
	a.stale, p.stale = true, true
}

// ForgetSlice records that a ResourceSlice is gone.
func (a *Account) ForgetSlice(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.slices[name]; p != nil {
		delete(a.slices, name)
		delete(p.slices, name)
		a.stale, p.stale = true, true
	}
}

// reading locks the account to read it, with no pool stale. What it returns unlocks the account.
func (a *Account) reading() (unlock func()) {
	a.mu.RLock()
	if !a.stale {
		return a.mu.RUnlock
	}
	a.mu.RUnlock()
	a.mu.Lock() // until the end: others may make a pool stale again in between
	for _, p := range a.pools {
		p.refresh()
		a.dropUnused(p)
	}
	a.stale = false
	return a.mu.Unlock
}

// refresh makes a stale pool what its slices say now. Devices that nobody has and no slice names are dropped.
func (p *pool) refresh() {
	if !p.stale {
		return
	}
	for _, d := range p.devices {
		d.slice, d.published, d.charges = nil, nil, nil
	}
	p.stale, p.complete, p.unpublished = false, true, 0
	clear(p.counters)
	current := p.current()
	for _, s := range current {
		p.complete = p.complete && s.Spec.Pool.ResourceSliceCount == int64(len(current))
		p.publish(s)
	}
	for _, d := range p.devices {
		if d.published != nil && len(d.published.ConsumesCounters) > 0 {
			d.charges = p.chargesOf(d.published)
		}
		if len(d.owners) > 0 {
			d.charge(1)
		}
		p.dropUnused(d)
	}
}

// current returns the slices that count.
func (p *pool) current() []*resourcev1.ResourceSlice {
	own := false // the node that the pool is named after has slices
	for _, s := range p.slices {
		own = own || ptr.Deref(s.Spec.NodeName, "") == p.key.name
	}
	list := make([]*resourcev1.ResourceSlice, 0, len(p.slices))
	for _, s := range p.slices {
		if node := ptr.Deref(s.Spec.NodeName, ""); own && node != "" && node != p.key.name {
			continue
		}
		if len(list) > 0 && s.Spec.Pool.Generation > list[0].Spec.Pool.Generation {
			list = list[:0]
		}
		if len(list) == 0 || s.Spec.Pool.Generation == list[0].Spec.Pool.Generation {
			list = append(list, s)
		}
	}
	return list
}

// publish makes the devices and counters of a slice count. Of two slices that name one device the first by name does:
// kube-scheduler takes nothing of such a pool.
func (p *pool) publish(s *resourcev1.ResourceSlice) {
	for i := range s.Spec.SharedCounters {
		set := &s.Spec.SharedCounters[i]
		for name, of := range set.Counters {
			c := p.counterOf(set.Name, name)
			c.limits = append(c.limits, of.Value)
		}
	}
	for i := range s.Spec.Devices {
		published := &s.Spec.Devices[i]
		if d := p.deviceOf(published.Name); d.slice == nil || s.Name < d.slice.Name {
			d.slice, d.published = s, published
		}
	}
}

// chargesOf returns what a device takes, set by set in the order of names: a refusal names the first that is exceeded.
func (p *pool) chargesOf(d *resourcev1.Device) (list []charge) {
	for i := range d.ConsumesCounters {
		set := &d.ConsumesCounters[i]
		for _, name := range slices.Sorted(maps.Keys(set.Counters)) {
			list = append(list, charge{p.counterOf(set.CounterSet, name), set.Counters[name].Value})
		}
	}
	return list
}

func (p *pool) counterOf(set, name string) *counter {
	key := counterKey{set, name}
	c := p.counters[key]
	if c == nil {
		c = &counter{key: key}
		p.counters[key] = c
	}
	return c
}

func (a *Account) poolOf(key poolKey) *pool {
	p := a.pools[key]
	if p == nil {
		p = &pool{
			key: key, slices: map[string]*resourcev1.ResourceSlice{}, devices: map[string]*device{},
			counters: map[counterKey]*counter{},
		}
		a.pools[key] = p
	}
	return p
}

// dropUnused drops a pool of which nothing is left.
func (a *Account) dropUnused(p *pool) {
	if len(p.slices) == 0 && len(p.devices) == 0 {
		delete(a.pools, p.key)
	}
}

// deviceOf returns the device of a name, and makes an entry for one that is new.
func (p *pool) deviceOf(name string) *device {
	d := p.devices[name]
	if d == nil {
		d = &device{pool: p, name: name}
		p.devices[name] = d
	}
	return d
}

// dropUnused drops a device that is in no slice and that nobody has.
func (p *pool) dropUnused(d *device) {
	if d.published == nil && len(d.owners) == 0 {
		delete(p.devices, d.name)
	}
}
