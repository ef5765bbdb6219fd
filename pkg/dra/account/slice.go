package account

import (
	"maps"
	"slices"
	"unique"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// read makes a slice of the pool. Nothing of it counts yet, except that it names its counters.
func (p *pool) read(s *resourcev1.ResourceSlice) *slice {
	made := &slice{
		pool: p, name: s.Name, node: ptr.Deref(s.Spec.NodeName, ""),
		generation: s.Spec.Pool.Generation, count: s.Spec.Pool.ResourceSliceCount,
		devices: make([]publication, len(s.Spec.Devices)),
	}
	for i := range s.Spec.SharedCounters {
		set := &s.Spec.SharedCounters[i]
		made.limits = p.readCounters(made.limits, set.Name, set.Counters)
	}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		made.devices[i] = publication{name: unique.Make(d.Name), slice: made, properties: p.readProperties(d)}
	}
	for c := range made.counters {
		c.slices++
	}
	return made
}

func (p *pool) readProperties(d *resourcev1.Device) *properties {
	shareable := ptr.Deref(d.AllowMultipleAllocations, false)
	if d.NodeName == nil && !shareable && len(d.ConsumesCounters) == 0 {
		return plain
	}
	made := &properties{node: ptr.Deref(d.NodeName, ""), shareable: shareable}
	if shareable {
		for name, capacity := range d.Capacity {
			made.capacity.entry(unique.Make(string(name))).Add(capacity.Value)
		}
	}
	for i := range d.ConsumesCounters {
		consumed := &d.ConsumesCounters[i]
		made.charges = p.readCounters(made.charges, consumed.CounterSet, consumed.Counters)
	}
	return made
}

// readCounters appends counters of a set, in the order of their names: a refusal names the first that is exceeded.
func (p *pool) readCounters(list []limit, set string, from map[string]resourcev1.Counter) []limit {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		key := counterKey{unique.Make(set).Value(), unique.Make(name).Value()}
		c := p.counters[key]
		if c == nil {
			c = &counter{key: key}
			if p.counters == nil {
				p.counters = map[counterKey]*counter{}
			}
			p.counters[key] = c
		}
		list = append(list, limit{counter: c, quantity: from[name].Value.DeepCopy()})
	}
	return list
}

// counters yields the counters that the slice names, each as often as it does.
func (s *slice) counters(yield func(*counter) bool) {
	for i := range s.limits {
		if !yield(s.limits[i].counter) {
			return
		}
	}
	for i := range s.devices {
		for j := range s.devices[i].charges {
			if !yield(s.devices[i].charges[j].counter) {
				return
			}
		}
	}
}
