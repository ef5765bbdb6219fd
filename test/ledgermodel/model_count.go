package ledgermodel

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// devicesFree returns how much of a resource is free by the devices of a node: nobody can have more than those there
// are, or than are offered beyond them, less what may not be given out and what somebody has uncounted. Where none
// are offered, those that are gone and had by somebody are no loss to the others.
func (m *Model) devicesFree(node string, name v1.ResourceName, offered, used int64) int64 {
	p, all, lost := devices.NewPool(m.devices[node]), int64(0), int64(0)
	for k := range p.Len() {
		d := p.Device(k)
		if d.Resource != string(name) {
			continue
		}
		all++
		if counted := m.countedFor(node, d); !counted && (d.Unschedulable || !m.unused(node, d, nil)) {
			lost++
		}
	}
	switch {
	case all == 0:
		return offered - used
	case offered == 0:
		offered = all + m.vanished(node, string(name), p)
	}
	return min(offered-used, max(0, max(offered, all)-lost-used))
}

// vanished counts the devices that somebody on a node has and that are not there any more.
func (m *Model) vanished(node, name string, p *devices.Pool) int64 {
	ids := map[string]bool{}
	note := func(given []ledger.GivenDevices) {
		for _, g := range given {
			for _, id := range g.IDs {
				if _, there := p.Find(name, id); g.Resource == name && !there {
					ids[id] = true
				}
			}
		}
	}
	for _, c := range m.allocations {
		if c.node == node {
			note(c.given)
		}
	}
	for _, h := range m.slots {
		if h.Node == node {
			note(h.given)
		}
	}
	return int64(len(ids))
}

// countedFor reports whether somebody who has a device is charged for it by count.
func (m *Model) countedFor(node string, d *devices.Device) bool {
	is := func(given []ledger.GivenDevices, request *resources.Request) bool {
		return slices.ContainsFunc(given, func(g ledger.GivenDevices) bool {
			known := g.Resource != "" || m.asks(request)[v1.ResourceName(d.Resource)] > 0
			return known && has([]ledger.GivenDevices{g}, d)
		})
	}
	return slices.ContainsFunc(m.allocations, func(c *modelAllocation) bool {
		return c.node == node &&
			is(c.given, c.request)
	}) ||
		slices.ContainsFunc(m.slots, func(h *modelSlot) bool { return h.Node == node && is(h.given, h.Request) })
}

// resourcesOfDevices lists the resources of a node's devices, by name.
func (m *Model) resourcesOfDevices(node string) (names []string) {
	for _, d := range m.devices[node] {
		names = append(names, d.Resource)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func claimsOf(r *ledger.DeviceRequest, resource string) (count int64) {
	if r != nil {
		for _, request := range r.Requests {
			if request.Resource() == resource {
				count += int64(request.Count())
			}
		}
	}
	return count
}

// withDevices is what becomes of the verdict about the rest once devices count, too. named tells whether the claims are
// met.
func (m *Model) withDevices(v ledger.Verdict, node string, p *ledger.Placement, by *modelSlot,
	named func() bool,
) ledger.Verdict {
	for _, name := range m.resourcesOfDevices(node) {
		column, counted := m.table.Lookup(v1.ResourceName(name))
		if n := m.nodes[node]; v.Reason != ledger.Fits || !counted || n == nil || m.offered(node, v1.ResourceName(name)) > 0 {
			continue
		}
		more := m.asks(p.Request)[v1.ResourceName(name)] - claimsOf(p.Devices, name)
		if by != nil {
			more -= max(0, count(m.kept(by, v1.ResourceName(name)))-count(m.asked(by, v1.ResourceName(name))))
		}
		if more > 0 {
			v = ledger.Verdict{Reason: ledger.InsufficientResource, Column: column}
		}
	}
	v = m.withoutDRA(v, node, p)
	short := v.Reason == ledger.InsufficientResource && !v.Unlisted &&
		claimsOf(p.Devices, string(m.table.Name(v.Column))) > 0
	if p.Devices != nil && (v.Reason == ledger.Fits || short) && !named() {
		return ledger.Verdict{Reason: ledger.InsufficientDevices}
	}
	return v
}

// giveCounted gives what is bound devices for what it asks for by count, as far as there are any.
func (m *Model) giveCounted(c *modelAllocation) {
	others := m.only(func(o *modelAllocation) bool { return o != c }, anySlot)
	p, free, preferred := others.pool(c.node, others.slot(c.uses))
	for _, name := range m.resourcesOfDevices(c.node) {
		wanted, left := m.asks(c.request)[v1.ResourceName(name)], int64(0)
		for _, g := range c.given {
			if g.Resource == name {
				wanted -= int64(len(g.IDs))
			}
		}
		for k := range p.Len() {
			if has(c.given, p.Device(k)) {
				free.Remove(k)
			} else if free.Has(k) && p.Device(k).Resource == name {
				left++
			}
		}
		if wanted = min(wanted, left); wanted > 0 {
			r := &ledger.DeviceRequest{Requests: []*devices.Request{devices.Any(name, int(wanted))}}
			choice, _ := p.Choose(free, preferred, r.Requests)
			c.given = slices.Concat(c.given, named(p, r, choice))
		}
	}
}

// charged is what a pod counts for that has devices.
func (m *Model) charged(r *resources.Request, given []ledger.GivenDevices) *resources.Request {
	count := map[string]int64{}
	for _, g := range given {
		count[g.Resource] += int64(len(g.IDs))
	}
	for name, value := range count {
		if name != "" {
			r = r.AtLeast(m.table, v1.ResourceName(name), value)
		}
	}
	return r
}

// claimedOf returns what claims were given, without what was given by count.
func claimedOf(given []ledger.GivenDevices) (claimed []ledger.GivenDevices) {
	for _, g := range given {
		if g.Claim.Name != "" {
			claimed = append(claimed, g)
		}
	}
	return claimed
}

// observeDevices makes a pod have what it says that it has, the first time it is
// seen bound, and reports whether that is something else than before.
func (m *Model) observeDevices(c *modelAllocation, o *ledger.PodObservation) bool {
	r, was, had, all := o.Devices, c.given, c.devices != nil || c.given != nil, strings.Join(c.ids(), ",")
	unclear := slices.ContainsFunc(c.given, func(g ledger.GivenDevices) bool { return g.Resource == "" })
	settled := c.said && all != ""
	exactly := func(g ledger.GivenDevices, ref ledger.DeviceClaimRef) bool { return g.Claim == ref }
	byName := func(g ledger.GivenDevices, ref ledger.DeviceClaimRef) bool {
		return g.Claim.Namespace == ref.Namespace && g.Claim.Name == ref.Name
	}
	switch {
	case settled && (r == nil || r.Err != "" || len(r.Claims) == 0 || r.Given != all):
	case settled && !unclear:
		if slices.EqualFunc(claimedOf(was), r.Claims, byName) {
			c.given = slices.Clone(was)
			for k := range r.Claims {
				c.given[k].Claim = r.Claims[k]
			}
		}
	case r == nil:
		c.devices, c.given = nil, nil
	case had && !settled && r.Err != "" && all == r.Given:
	case had && !settled && all != "" && all == r.Given && slices.EqualFunc(claimedOf(was), r.Claims, exactly):
		c.devices = r
	default:
		c.devices, c.given = r, m.readGiven(r, o.Request)
		if len(c.given) == 0 && r.Err == "" {
			c.devices, c.given = nil, nil
		}
	}
	c.said = c.devices != nil || c.given != nil
	return had != c.said || !sameGiven(was, c.given)
}

func sameGiven(a, b []ledger.GivenDevices) bool {
	return slices.EqualFunc(a, b, func(a, b ledger.GivenDevices) bool {
		return a.Claim == b.Claim && a.Resource == b.Resource && slices.Equal(a.IDs, b.IDs)
	})
}

// readGiven reads what a bound pod says that it has: the devices of its claims, and then those for what it asks for
// by count.
func (m *Model) readGiven(r *ledger.DeviceRequest, request *resources.Request) []ledger.GivenDevices {
	ids := slices.DeleteFunc(strings.Split(r.Given, ","), func(id string) bool { return id == "" })
	byCount, names, wanted := 0, []string{}, 0
	for name, value := range m.asks(request) {
		column, _ := m.table.Lookup(name)
		if more := value - claimsOf(r, string(name)); column > resources.Pods && more > 0 &&
			strings.Contains(string(name), "/") {
			byCount, names = byCount+int(min(more, 1<<20)), append(names, string(name))
		}
	}
	if len(r.Claims) == 0 && r.Err == "" {
		ids = ids[:min(len(ids), byCount)]
	}
	given := []ledger.GivenDevices{}
	for k, ref := range r.Claims {
		g := ledger.GivenDevices{Claim: ref}
		if r.Requests != nil {
			g.Resource = r.Requests[k].Resource()
			wanted += r.Requests[k].Count()
		}
		given = append(given, g)
	}
	unknown := r.Err != "" || (r.Requests == nil && len(r.Claims) > 0) || len(ids) < wanted || len(ids) > wanted+byCount
	for k := range given {
		if !unknown {
			count := r.Requests[k].Count()
			given[k].IDs, ids = ids[:count:count], ids[count:]
		}
	}
	if len(ids) > 0 {
		rest := ledger.GivenDevices{IDs: ids}
		if !unknown && len(names) == 1 {
			rest.Resource = names[0]
		}
		given = append(given, rest)
	}
	return given
}
