package account

import (
	"slices"
	"unique"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

type poolKey struct{ driver, name string }

// pool is the devices of one driver that are numbered together. Only the slices of the highest generation say what
// there is. A node may write slices for any pool, if they are of that node: in a pool that is named after a node that
// has slices there, as drivers of nodes do it, the slices of other nodes do not count.
type pool struct {
	key        poolKey
	generation int64
	slices     map[string]*slice // of every generation
	own        int               // of them, those of the node that the pool is named after
	current    int64             // slices of the highest generation that counts
	counts     map[int64]int64   // of them, by how many they say that there are
	devices    map[string]*device
	counters   map[counterKey]*counter
	duplicates int // devices that a further slice of the highest generation names, too
	// unpublished is how many devices somebody has that are in no slice that counts.
	unpublished int
}

// slice is a ResourceSlice.
type slice struct {
	pool       *pool
	name       string
	node       string
	generation int64
	count      int64
	published  bool // it is of the highest generation
	devices    []publication
	limits     []limit
}

// publication is a device in a slice.
type publication struct {
	name   unique.Handle[string]
	device *device // while the slice is of the highest generation
	slice  *slice
	*properties
}

// properties are what only some devices have.
type properties struct {
	node      string // where the slice names none
	shareable bool
	capacity  amounts // of those that are shareable
	charges   []limit // what the device takes of shared counters while somebody has it
}

// plain are the properties of a device that has none.
var plain = &properties{}

// limit is an amount of a shared counter.
type limit struct {
	counter  *counter
	quantity resource.Quantity
}

type counterKey struct{ set, name string }

func (k counterKey) String() string { return k.set + "/" + k.name }

// counter is a shared counter of a pool.
type counter struct {
	key    counterKey
	slices int               // that name it, of every generation
	limits []*limit          // by the slices of the highest generation: one, or they contradict each other
	used   resource.Quantity // by the devices that somebody has
}

// ObserveSlice records a ResourceSlice as it is now.
func (a *Account) ObserveSlice(s *resourcev1.ResourceSlice) {
	a.mu.Lock()
	defer a.mu.Unlock()

	key := poolKey{s.Spec.Driver, s.Spec.Pool.Name}
	if old := a.slices[s.Name]; old != nil {
		a.withdraw(old)
		if old.pool.key != key {
			a.settle(old.pool)
		}
	}
	p := a.poolOf(key)
	made := p.read(s)
	a.slices[s.Name], p.slices[s.Name] = made, made
	if made.own() {
		p.own++
	}
	if made.own() && p.own == 1 || made.counts() && made.generation > p.generation {
		p.outdate()
	}
	if p.current > 0 && made.counts() && made.generation == p.generation {
		p.publish(made)
	}
	a.settle(p)
}

// ForgetSlice records that a ResourceSlice is gone.
func (a *Account) ForgetSlice(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.slices[name]; s != nil {
		a.withdraw(s)
		a.settle(s.pool)
	}
}

// withdraw takes a slice out of its pool. The caller settles the pool.
func (a *Account) withdraw(s *slice) {
	p := s.pool
	if s.published {
		p.unpublish(s)
	}
	delete(a.slices, s.name)
	delete(p.slices, s.name)
	if s.own() {
		if p.own--; p.own == 0 {
			p.outdate()
		}
	}
	for c := range s.counters {
		if c.slices--; c.slices == 0 {
			delete(p.counters, c.key)
		}
	}
}

// settle publishes the slices of the highest generation where none of them is, and drops a pool of which nothing
// is left.
func (a *Account) settle(p *pool) {
	if p.current > 0 {
		return
	}
	if len(p.slices) == 0 {
		a.dropUnused(p)
		return
	}
	first := true
	for _, s := range p.slices {
		if s.counts() && (first || s.generation > p.generation) {
			p.generation, first = s.generation, false
		}
	}
	for _, s := range p.slices {
		if s.counts() && s.generation == p.generation {
			p.publish(s)
		}
	}
}

// own says whether the slice is of the node that its pool is named after.
func (s *slice) own() bool { return s.node == s.pool.key.name }

// counts says whether the slice may say what there is in its pool.
func (s *slice) counts() bool { return s.pool.own == 0 || s.node == "" || s.own() }

func (a *Account) dropUnused(p *pool) {
	if len(p.slices) == 0 && len(p.devices) == 0 {
		delete(a.pools, p.key)
	}
}

func (a *Account) poolOf(key poolKey) *pool {
	p := a.pools[key]
	if p == nil {
		p = &pool{key: key, slices: map[string]*slice{}, devices: map[string]*device{}, counts: map[int64]int64{}}
		a.pools[key] = p
	}
	return p
}

// complete says whether all slices of the pool are there: each of them says how many there are. kube-scheduler
// allocates nothing of a pool that is not complete.
func (p *pool) complete() bool { return p.current > 0 && p.counts[p.current] == p.current }

// outdate unpublishes all slices: others count now.
func (p *pool) outdate() {
	for _, s := range p.slices {
		if s.published {
			p.unpublish(s)
		}
	}
}

// publish makes the devices and counters of a slice count.
func (p *pool) publish(s *slice) {
	s.published = true
	p.current++
	p.counts[s.count]++
	for i := range s.limits {
		c := s.limits[i].counter
		c.limits = append(c.limits, &s.limits[i])
	}
	for i := range s.devices {
		pub := &s.devices[i]
		pub.device = p.deviceOf(pub.name)
		if pub.device.published != nil {
			p.duplicates++
		}
		if pub.before(pub.device.published) {
			pub.device.publish(pub)
		}
	}
}

// before says whether pub counts, of two slices that name one device. kube-scheduler takes nothing of such a pool.
func (pub *publication) before(other *publication) bool {
	return other == nil || pub.slice.name < other.slice.name
}

// unpublish is the reverse of publish.
func (p *pool) unpublish(s *slice) {
	s.published = false
	p.current--
	if p.counts[s.count]--; p.counts[s.count] == 0 {
		delete(p.counts, s.count)
	}
	for i := range s.limits {
		c := s.limits[i].counter
		c.limits = slices.DeleteFunc(c.limits, func(l *limit) bool { return l == &s.limits[i] })
	}
	for i := range s.devices {
		pub := &s.devices[i]
		d := pub.device
		pub.device = nil
		var next *publication
		if p.duplicates > 0 {
			next = p.find(d)
		}
		if next != nil {
			p.duplicates--
		}
		if d.published == pub {
			d.publish(next)
		}
		p.dropUnused(d)
	}
}

// find looks for the first of the slices that count and name a device.
func (p *pool) find(d *device) *publication {
	var found *publication
	for _, s := range p.slices {
		for i := range s.devices {
			if pub := &s.devices[i]; pub.device == d && pub.before(found) {
				found = pub
			}
		}
	}
	return found
}

// deviceOf returns the device of a name, and makes an entry for one that is new.
func (p *pool) deviceOf(name unique.Handle[string]) *device {
	d := p.devices[name.Value()]
	if d == nil {
		d = &device{pool: p, name: name}
		p.devices[name.Value()] = d
	}
	return d
}

// dropUnused drops a device that is in no slice and that nobody has.
func (p *pool) dropUnused(d *device) {
	if d.published == nil && len(d.owners) == 0 {
		delete(p.devices, d.name.Value())
	}
}
