package ledger

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// What follows keeps the devices of a node and the counts of their resource in one account: a node that offers four
// of a resource and has four devices of it has four. A claim of devices is charged by count, too (Counted), and a pod
// that asks by count is given devices as well, once it is bound.

// counted is a resource that a node has devices of and that is counted.
type counted struct {
	resource string
	column   resources.Column
	devices  devices.Set
	// withheld is how many of them nobody can have although nobody is charged for them: they are not to be given
	// out, or a pod has them and does not say what for.
	withheld int64
	// gone are the IDs of devices that somebody on the node has and that are not there any more.
	gone []string
}

// free returns how much of the resource is free on a node that offers some by count, and of which some is used. A
// node that offers none by count has its devices all the same, and a pod with one that is gone takes none of them. What
// is offered beyond the devices has no device.
func (c *counted) free(offered, used int64) int64 {
	all := int64(c.devices.Len())
	if offered == 0 {
		offered = all + int64(len(c.gone))
	}
	most := max(offered, all) - c.withheld
	return min(resources.Sub(offered, used), max(0, resources.Sub(most, used)))
}

func (c counted) compare(name string) int { return strings.Compare(c.resource, name) }

// countedOf lists the resources of devices that are counted, by name, and gives each a column.
func countedOf(t *resources.Table, pool *devices.Pool) (all []counted) {
	for k := range pool.Len() {
		name := pool.Device(k).Resource
		at, ok := slices.BinarySearchFunc(all, name, counted.compare)
		if !ok {
			column, counts := t.Offer(v1.ResourceName(name))
			if !counts {
				continue
			}
			all = slices.Insert(all, at, counted{resource: name, column: column, devices: pool.NewSet()})
		}
		all[at].devices.Add(k)
	}
	return all
}

// recountWithheld counts anew which devices of a node nobody can have.
func (l *account) recountWithheld(i int32) {
	n := l.nodes[i]
	had, charged := n.devices.pool.NewSet(), n.devices.pool.NewSet()
	for k := range n.devices.counted {
		n.devices.counted[k].gone = n.devices.counted[k].gone[:0]
	}
	for e := n.first; e != nil; e = e.next {
		for _, g := range e.given() {
			n.devices.noteGone(&g)
			n.devices.visitOf(&g, func(d int) {
				had.Add(d)
				if g.Resource != "" || n.devices.charges(e, d) {
					charged.Add(d)
				}
			})
		}
	}
	for k := range n.devices.counted {
		c := &n.devices.counted[k]
		c.withheld = 0
		for d := range n.devices.pool.Len() {
			if c.devices.Has(d) && !charged.Has(d) && (had.Has(d) || n.devices.pool.Device(d).Unschedulable) {
				c.withheld++
			}
		}
	}
	l.refreshCounted(i)
}

// noteGone records which devices of those given are not there any more.
func (d *nodeDevices) noteGone(g *GivenDevices) {
	k, ok := slices.BinarySearchFunc(d.counted, g.Resource, counted.compare)
	if !ok {
		return
	}
	c := &d.counted[k]
	for _, id := range g.IDs {
		if _, there := d.pool.Find(g.Resource, id); !there && !slices.Contains(c.gone, id) {
			c.gone = append(c.gone, id)
		}
	}
}

// charges reports whether an entry asks for the resource of a device by count.
func (d *nodeDevices) charges(e *entry, device int) bool {
	return slices.ContainsFunc(d.counted, func(c counted) bool {
		return c.devices.Has(device) && e.request.Value(c.column) > 0
	})
}

// refreshCounted recomputes the free amounts of what a node has devices of.
func (l *account) refreshCounted(i int32) {
	n, row, used := l.nodes[i], l.row(i), l.usedRow(i)
	for k := range n.devices.counted {
		c := &n.devices.counted[k]
		row[c.column] = c.free(n.offered(c.column), used[c.column])
	}
}

// notOffered returns a resource that a pod asks for by count, and not by claims alone, of a node that has devices of it
// and offers none by count: its device plugin is away, say. The kubelet would refuse such a pod, also one that uses a
// slot.
func (l *account) notOffered(i int32, p *Placement) (resources.Column, bool) {
	n := l.nodes[i]
	for k := range n.devices.counted {
		c := &n.devices.counted[k]
		if n.offered(c.column) > 0 {
			continue
		}
		if p.Request.Value(c.column) > p.Devices.countOf(c.resource) {
			return c.column, true
		}
	}
	return 0, false
}

// countOf returns how many devices of a resource are asked for.
func (r *DeviceRequest) countOf(resource string) (count int64) {
	if r == nil {
		return 0
	}
	for _, request := range r.Requests {
		if request.Resource() == resource {
			count += int64(request.Count())
		}
	}
	return count
}

// Counted returns what is asked for with the devices counted: of each resource at least as much as devices of it are
// asked for. A pod that asks for two by count, and for one by a claim, is to have two, of which the claim chooses one.
func (r *DeviceRequest) Counted(t *resources.Table, req *resources.Request) *resources.Request {
	if r == nil {
		return req
	}
	for _, request := range r.Requests {
		req = req.AtLeast(t, v1.ResourceName(request.Resource()), r.countOf(request.Resource()))
	}
	return req
}

// WithGiven returns what a pod asks for with the devices counted that it was given.
func WithGiven(t *resources.Table, req *resources.Request, given []GivenDevices) *resources.Request {
	for _, g := range given {
		if g.Resource != "" {
			req = req.AtLeast(t, v1.ResourceName(g.Resource), countGiven(given, g.Resource))
		}
	}
	return req
}

// countGiven returns how many devices of a resource were given.
func countGiven(given []GivenDevices, resource string) (count int64) {
	for _, g := range given {
		if g.Resource == resource {
			count += int64(len(g.IDs))
		}
	}
	return count
}

// giveCounted gives a pod that is bound devices for what it asks for by count, as far as there are any: they follow
// those of its claims. No pod is refused for lack of these: the amounts say how many there are.
func (l *account) giveCounted(i int32, req *resources.Request, a *deviceGrant, h *entry) *deviceGrant {
	n := l.nodes[i]
	if n.devices == nil {
		return a
	}
	for k := range n.devices.counted {
		c := &n.devices.counted[k]
		wanted := req.Value(c.column)
		if l.leftToDRA(i, c.column) {
			continue // DRA gives it
		}
		if a != nil {
			wanted -= countGiven(a.given, c.resource)
		}
		if wanted > 0 {
			a = n.giveMore(c, wanted, a, h)
		}
	}
	return a
}

// giveMore adds as many devices of a resource as are wanted to what is given, or as many as are free.
func (n *node) giveMore(c *counted, wanted int64, a *deviceGrant, h *entry) *deviceGrant {
	free := slices.Clone(n.freeDevices(h))
	var preferred devices.Set
	if h != nil {
		preferred = n.devices.setOf(h.given())
	}
	more := &deviceGrant{}
	if a != nil {
		n.devices.visit(a.given, free.Remove)
		*more = *a
	}
	count := min(wanted, int64(free.LenCommon(c.devices)))
	if count == 0 {
		return a
	}
	r := &DeviceRequest{Requests: []*devices.Request{devices.Any(c.resource, int(count))}}
	choice, _ := n.devices.pool.Choose(free, preferred, r.Requests)
	more.given = append(slices.Clip(more.given), n.chosen(r, choice)...)
	return more
}

// claimed returns the devices that claims were given, which come before those of none.
func claimed(given []GivenDevices) []GivenDevices {
	end := len(given)
	for end > 0 && given[end-1].Claim.Name == "" {
		end--
	}
	return given[:end]
}

// withoutCounted returns what a slot keeps of the devices of a pod that is not bound any more: what the pod asked for
// by count, the slot keeps by count.
func (a *deviceGrant) withoutCounted() *deviceGrant {
	if a == nil || a.request == nil {
		return nil
	}
	less := *a
	less.given = claimed(a.given)
	return &less
}

// byCount returns how many devices at most a pod has for what it asks for by count, beyond its claims, and the
// resource, which is empty where there are several.
func (l *account) byCount(r *DeviceRequest, req *resources.Request) (resource string, most int64) {
	several := false
	for _, a := range req.Amounts {
		if a.Column <= resources.Pods {
			continue
		}
		name := string(l.table.Name(a.Column))
		if !devices.Named(name) {
			continue
		}
		if more := a.Value - r.countOf(name); more > 0 {
			several = several || resource != ""
			most, _ = resources.Add(most, more)
			resource = name
		}
	}
	if several {
		return "", most
	}
	return resource, most
}
