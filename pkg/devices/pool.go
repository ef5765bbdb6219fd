package devices

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"unique"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// Device is one device of a node.
type Device struct {
	Name       string // of the ExtendedResource object
	Resource   string // such as nvidia.com/gpu
	ID         string // what containers call it by; with Resource it identifies the device on its node
	Properties map[string]string
	// Unschedulable keeps the device from being given out.
	Unschedulable bool
}

func (d *Device) identity() identity { return identity{d.Resource, d.ID} }

type identity struct{ resource, id string }

// Pool is the devices of one node, numbered from 0 in order of their names. Make one with NewPool; it
// is never changed, and several goroutines may use it at a time.
type Pool struct {
	devices []Device
	index   map[string]int   // by name, other names included
	byID    map[identity]int // by what distinguishes devices
	// amounts has those properties of each device that are numbers or quantities: to read one costs much more than to
	// compare it.
	amounts []map[string]resource.Quantity
	// matches is what is known of how requests match the devices. A match that finds its places full replaces another one.
	matches [maxMatches / ways][ways]atomic.Pointer[match]
}

// match is how one shape of request matches the devices of a pool.
type match struct {
	shape unique.Handle[string]
	set   Set
	order []int // the devices of the set, the best for the request first
}

// NewPool returns the pool of a node's devices. Objects that are the same device, by resource and ID,
// are one device of the pool: that with the first name. It can be found by their names, too.
func NewPool(devices []Device) *Pool {
	byName := slices.SortedFunc(slices.Values(devices), func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	p := &Pool{index: make(map[string]int, len(devices)), byID: make(map[identity]int, len(devices))}
	for _, d := range byName {
		i, same := p.byID[d.identity()]
		if !same {
			i = len(p.devices)
			p.byID[d.identity()] = i
			p.devices = append(p.devices, d)
			p.amounts = append(p.amounts, amountsOf(d.Properties))
		}
		p.index[d.Name] = i
	}
	return p
}

func amountsOf(properties map[string]string) map[string]resource.Quantity {
	amounts := map[string]resource.Quantity{}
	for key, value := range properties {
		if amount, ok := parseAmount(value); ok {
			amounts[key] = amount
		}
	}
	return amounts
}

// Len returns how many devices the pool has.
func (p *Pool) Len() int { return len(p.devices) }

// Device returns device i. Its properties must not be changed.
func (p *Pool) Device(i int) *Device { return &p.devices[i] }

// Find returns the number of the device with a resource and an ID.
func (p *Pool) Find(resource, id string) (i int, ok bool) {
	i, ok = p.byID[identity{resource, id}]
	return i, ok
}

// NewSet returns an empty set of the pool's devices.
func (p *Pool) NewSet() Set { return make(Set, p.words()) }

func (p *Pool) words() int { return (len(p.devices) + 63) / 64 }

// Schedulable returns a new set of the devices that may be given out.
func (p *Pool) Schedulable() Set {
	set := p.NewSet()
	for i := range p.devices {
		if !p.devices[i].Unschedulable {
			set.Add(i)
		}
	}
	return set
}

// maxMatches bounds what a pool remembers, and ways how many of that may have the same place. There are rarely more
// shapes of requests than kinds of devices. A client that makes up new ones, for all pools, only makes the pools
// forget some: neither the memory nor what a new shape costs grows with those before.
const (
	maxMatches = 128
	ways       = 4
)

var shapeSeed = maphash.MakeSeed()

// match returns how a request matches the devices.
func (p *Pool) match(r *Request) *match {
	place := &p.matches[r.hash%uint64(len(p.matches))]
	at := int(r.hash >> 32 % ways)
	for k := range place {
		m := place[k].Load()
		if m == nil {
			at = k
			break
		}
		if m.shape == r.shape {
			return m
		}
	}
	m := p.newMatch(r)
	place[at].Store(m)
	return m
}

func (p *Pool) newMatch(r *Request) *match {
	m := &match{shape: r.shape, set: p.NewSet()}
	wasted := make([]int, len(p.devices))
	for i := range p.devices {
		d := &p.devices[i]
		if d.Resource == r.resource && r.selector.selects(d.Properties, p.amounts[i]) {
			m.set.Add(i)
			m.order = append(m.order, i)
			wasted[i] = r.selector.wasted(d.Properties)
		}
	}
	slices.SortStableFunc(m.order, func(a, b int) int {
		by := cmp.Compare(wasted[a], wasted[b])
		for i := 0; by == 0 && i < len(r.selector.requirements); i++ {
			by = p.compareBy(&r.selector.requirements[i], a, b)
		}
		return by
	})
	return m
}

// compareBy puts the device first whose amount is closer to the bound of a requirement.
func (p *Pool) compareBy(r *requirement, a, b int) int {
	x, y := p.amounts[a][r.key], p.amounts[b][r.key]
	switch r.operator {
	case v1alpha1.PropertyGt:
		return x.Cmp(y)
	case v1alpha1.PropertyLt:
		return y.Cmp(x)
	default:
		return 0
	}
}
