package account

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// model is the account as its package comment describes it, with nothing remembered that can be computed.
type model struct {
	slices map[string]*resourcev1.ResourceSlice
	claims map[string]*modelClaim
}

type modelClaim struct {
	version   int64
	allocated []resourcev1.DeviceRequestAllocationResult
	grants    []modelGrant
}

type modelGrant struct {
	results []resourcev1.DeviceRequestAllocationResult
	base    int64
	at      time.Time
}

func newModel() *model {
	return &model{slices: map[string]*resourcev1.ResourceSlice{}, claims: map[string]*modelClaim{}}
}

func resultsOf(c *resourcev1.ResourceClaim) (kept []resourcev1.DeviceRequestAllocationResult) {
	if c.Status.Allocation != nil {
		for _, r := range c.Status.Allocation.Devices.Results {
			if !ptr.Deref(r.AdminAccess, false) {
				kept = append(kept, r)
			}
		}
	}
	return kept
}

func deviceOf(r resourcev1.DeviceRequestAllocationResult) Device {
	return Device{r.Driver, r.Pool, r.Device}
}

func (m *model) claim(name string) *modelClaim {
	if m.claims[name] == nil {
		m.claims[name] = &modelClaim{}
	}
	return m.claims[name]
}

func (m *model) observe(c *resourcev1.ResourceClaim) {
	mine, version := m.claim(c.Name), Version(c.ResourceVersion)
	if version <= mine.version {
		return
	}
	mine.version, mine.allocated = version, resultsOf(c)
	mine.grants = slices.DeleteFunc(mine.grants, func(g modelGrant) bool { return g.base < version })
}

func (m *model) giveUp(name string, before time.Time) {
	if c := m.claims[name]; c != nil {
		c.grants = slices.DeleteFunc(c.grants, func(g modelGrant) bool { return g.at.Before(before) })
	}
}

// alternatives are all allocations that the claim may have.
func (c *modelClaim) alternatives() [][]resourcev1.DeviceRequestAllocationResult {
	all := [][]resourcev1.DeviceRequestAllocationResult{c.allocated}
	for _, g := range c.grants {
		all = append(all, g.results)
	}
	return all
}

// has tells what one allocation has of a device.
func has(results []resourcev1.DeviceRequestAllocationResult,
	d Device,
) (whole bool, shares int, consumed map[string]resource.Quantity) {
	consumed = map[string]resource.Quantity{}
	for _, r := range results {
		switch {
		case deviceOf(r) != d:
		case r.ShareID == nil:
			whole = true
		default:
			shares++
			for name, q := range r.ConsumedCapacity {
				sum := consumed[string(name)].DeepCopy()
				sum.Add(q)
				consumed[string(name)] = sum
			}
		}
	}
	return whole, shares, consumed
}

func same(a, b []resourcev1.DeviceRequestAllocationResult) bool {
	for _, list := range [][]resourcev1.DeviceRequestAllocationResult{a, b} {
		for _, r := range list {
			wholeA, sharesA, consumedA := has(a, deviceOf(r))
			wholeB, sharesB, consumedB := has(b, deviceOf(r))
			if wholeA != wholeB || sharesA != sharesB || len(consumedA) != len(consumedB) {
				return false
			}
			for name := range consumedA {
				if q := consumedA[name]; q.Cmp(consumedB[name]) != 0 {
					return false
				}
			}
		}
	}
	return true
}

// current are the slices of a pool that count, by name.
func (m *model) current(pool string) []*resourcev1.ResourceSlice {
	var list []*resourcev1.ResourceSlice
	for _, s := range m.slices {
		if s.Spec.Pool.Name == pool {
			list = append(list, s)
		}
	}
	if slices.ContainsFunc(list, func(s *resourcev1.ResourceSlice) bool {
		return ptr.Deref(s.Spec.NodeName,
			"") == pool
	}) {
		list = slices.DeleteFunc(list, func(s *resourcev1.ResourceSlice) bool {
			return s.Spec.NodeName != nil &&
				*s.Spec.NodeName != pool
		})
	}
	slices.SortFunc(list, func(a, b *resourcev1.ResourceSlice) int {
		return cmp.Or(cmp.Compare(b.Spec.Pool.Generation, a.Spec.Pool.Generation), cmp.Compare(a.Name, b.Name))
	})
	n := 0
	for n < len(list) && list[n].Spec.Pool.Generation == list[0].Spec.Pool.Generation {
		n++
	}
	return list[:n]
}

func (m *model) complete(pool string) bool {
	current := m.current(pool)
	for _, s := range current {
		if s.Spec.Pool.ResourceSliceCount != int64(len(current)) {
			return false
		}
	}
	return len(current) > 0
}

func (m *model) device(d Device) *resourcev1.Device {
	for _, s := range m.current(d.Pool) {
		for i := range s.Spec.Devices {
			if s.Spec.Devices[i].Name == d.Name {
				return &s.Spec.Devices[i]
			}
		}
	}
	return nil
}

// limit is what a counter has, and nothing where none or several slices say it.
func (m *model) limit(pool, set, name string) *resource.Quantity {
	var found []resource.Quantity
	for _, s := range m.current(pool) {
		for _, cs := range s.Spec.SharedCounters {
			if c, ok := cs.Counters[name]; ok && cs.Name == set {
				found = append(found, c.Value)
			}
		}
	}
	if len(found) != 1 {
		return nil
	}
	return &found[0]
}

// charge is what a device takes of a counter.
func charge(d *resourcev1.Device, set, name string) resource.Quantity {
	if d != nil {
		for _, c := range d.ConsumesCounters {
			if c.CounterSet == set {
				return c.Counters[name].Value
			}
		}
	}
	return resource.Quantity{}
}

// owner is what somebody may have of a device: the most of all allocations.
type modelOwner struct {
	whole, allocated bool
	shares           int
	consumed         map[string]resource.Quantity
}

// owners tells who may have a device, or only those to whom it is allocated.
func (m *model) owners(d Device, allocated bool) map[string]*modelOwner {
	all := map[string]*modelOwner{}
	for name, c := range m.claims {
		alternatives := c.alternatives()
		if allocated {
			alternatives = alternatives[:1]
		}
		for i, results := range alternatives {
			whole, shares, consumed := has(results, d)
			if !whole && shares == 0 {
				continue
			}
			if all[name] == nil {
				all[name] = &modelOwner{consumed: map[string]resource.Quantity{}}
			}
			o := all[name]
			o.whole, o.shares, o.allocated = o.whole || whole, max(o.shares, shares), o.allocated || i == 0
			for name, q := range consumed {
				if most := o.consumed[name]; most.Cmp(q) < 0 {
					o.consumed[name] = q
				}
			}
		}
	}
	return all
}

func sum(owners map[string]*modelOwner, name string) resource.Quantity {
	var total resource.Quantity
	for _, o := range owners {
		total.Add(o.consumed[name])
	}
	return total
}

// known are all devices of which somebody may have something, or that a slice names.
func (m *model) known() map[Device]bool {
	all := map[Device]bool{}
	for _, c := range m.claims {
		for _, results := range c.alternatives() {
			for _, r := range results {
				all[deviceOf(r)] = true
			}
		}
	}
	for _, s := range m.slices {
		for _, current := range m.current(s.Spec.Pool.Name) {
			for _, d := range current.Spec.Devices {
				all[Device{s.Spec.Driver, s.Spec.Pool.Name, d.Name}] = true
			}
		}
	}
	return all
}

// grant decides as the account has to, and remembers.
func (m *model) grant(c *resourcev1.ResourceClaim, base int64, now time.Time) bool {
	wanted := resultsOf(c)
	mine := m.claim(c.Name)
	if len(wanted) == 0 {
		return true
	}
	if malformedInModel(wanted) {
		return false
	}
	if base < mine.version {
		return same(wanted, mine.allocated)
	}
	if !m.fits(c.Name, wanted) {
		return false
	}
	for i := range mine.grants {
		if g := &mine.grants[i]; same(g.results, wanted) {
			g.base, g.at = max(g.base, base), now
			return true
		}
	}
	mine.grants = append(mine.grants, modelGrant{wanted, base, now})
	return true
}

func malformedInModel(wanted []resourcev1.DeviceRequestAllocationResult) bool {
	for i, r := range wanted {
		for _, other := range wanted[:i] {
			if deviceOf(r) == deviceOf(other) && (r.ShareID == nil || other.ShareID == nil) {
				return true
			}
		}
	}
	return false
}

// fits asks whether the claim can have this and nothing else, with all that others may have.
func (m *model) fits(name string, wanted []resourcev1.DeviceRequestAllocationResult) bool {
	world := &model{slices: m.slices, claims: map[string]*modelClaim{name: {}}}
	for other, c := range m.claims {
		if other != name {
			world.claims[other] = c
		}
	}
	mine := map[Device]bool{}
	for _, r := range wanted {
		d := deviceOf(r)
		whole, shares, consumed := has(wanted, d)
		others := world.owners(d, false)
		for _, o := range others {
			if whole || o.whole {
				return false
			}
		}
		if shares > 0 && !m.sharesFit(d, consumed, others) {
			return false
		}
		if len(others) == 0 {
			mine[d] = true
		}
	}
	world.claims[name] = &modelClaim{allocated: wanted}
	for d := range mine {
		if !world.countersFit(d) {
			return false
		}
	}
	return true
}

func (m *model) sharesFit(d Device, consumed map[string]resource.Quantity, others map[string]*modelOwner) bool {
	is := m.device(d)
	if is == nil || !ptr.Deref(is.AllowMultipleAllocations, false) {
		return false
	}
	for name, capacity := range is.Capacity {
		total := sum(others, string(name))
		total.Add(consumed[string(name)])
		if total.Cmp(capacity.Value) > 0 {
			return false
		}
	}
	for name, q := range consumed {
		if _, ok := is.Capacity[resourcev1.QualifiedName(name)]; !ok && !q.IsZero() {
			return false
		}
	}
	return true
}

func (m *model) countersFit(d Device) bool {
	is := m.device(d)
	if is == nil {
		return false
	}
	if len(is.ConsumesCounters) > 0 && (!m.complete(d.Pool) || m.hasUnpublished(d.Pool)) {
		return false
	}
	for _, consumed := range is.ConsumesCounters {
		for name, c := range consumed.Counters {
			limit := m.limit(d.Pool, consumed.CounterSet, name)
			if limit == nil {
				return false
			}
			if total := m.charged(d.Pool, consumed.CounterSet, name, false); !c.Value.IsZero() && total.Cmp(*limit) > 0 {
				return false
			}
		}
	}
	return true
}

// hasUnpublished says whether somebody may have a device of a pool that no slice names that counts.
func (m *model) hasUnpublished(pool string) bool {
	for d := range m.known() {
		if d.Pool == pool && m.device(d) == nil && len(m.owners(d, false)) > 0 {
			return true
		}
	}
	return false
}

// charged is what the devices of a pool that somebody has take of a counter.
func (m *model) charged(pool, set, name string, allocated bool) resource.Quantity {
	var total resource.Quantity
	for d := range m.known() {
		if d.Pool == pool && len(m.owners(d, allocated)) > 0 {
			total.Add(charge(m.device(d), set, name))
		}
	}
	return total
}

// report tells everything that can be read from an account, a line each.
func (m *model) report() []string {
	var lines []string
	for d := range m.known() {
		is, owners := m.device(d), m.owners(d, false)
		lines = append(lines, fmt.Sprintf("device %s published=%t", d, is != nil))
		for name, o := range owners {
			lines = append(lines, fmt.Sprintf("owner %s of %s allocated=%t whole=%t", name, d, o.allocated, o.whole))
		}
		if is == nil {
			continue
		}
		if ptr.Deref(is.AllowMultipleAllocations, false) {
			for name, capacity := range is.Capacity {
				total := sum(owners, string(name))
				lines = append(lines, fmt.Sprintf("use %s of %s: %s of %s", name, d, total.String(), capacity.Value.String()))
			}
		}
	}
	lines = append(lines, m.doubles()...)
	slices.Sort(lines)
	return lines
}

func (m *model) doubles() []string {
	var lines []string
	counters := map[string]bool{}
	for d := range m.known() {
		is, owners := m.device(d), m.owners(d, true)
		wholes := 0
		for _, o := range owners {
			if o.whole {
				wholes++
			}
		}
		shareable := is != nil && ptr.Deref(is.AllowMultipleAllocations, false)
		if len(owners) > 1 && (wholes > 0 || (is != nil && !shareable)) {
			lines = append(lines, fmt.Sprintf("double Doubled of %s %s %d", d, "", len(owners)))
		} else if shareable {
			for name, capacity := range is.Capacity {
				if total := sum(owners, string(name)); total.Cmp(capacity.Value) > 0 {
					lines = append(lines, fmt.Sprintf("double SharedCapacityExceeded of %s %s %d", d, name, len(owners)))
				}
			}
		}
		if is == nil {
			continue
		}
		for _, consumed := range is.ConsumesCounters {
			for name := range consumed.Counters {
				total := m.charged(d.Pool, consumed.CounterSet, name, true)
				limit := m.limit(d.Pool, consumed.CounterSet, name)
				if limit != nil && total.Cmp(*limit) > 0 {
					counters[fmt.Sprintf("double CountersExceeded of %s %s/%s", Device{d.Driver, d.Pool, ""}, consumed.CounterSet,
						name)] = true
				}
			}
		}
	}
	for line := range counters {
		lines = append(lines, line)
	}
	return lines
}
