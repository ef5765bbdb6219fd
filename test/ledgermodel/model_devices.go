package ledgermodel

import (
	"cmp"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// ObserveDevices records the devices of a node. Slots that lacked some take what there
// is.
func (m *Model) ObserveDevices(node string, list []devices.Device) bool {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b devices.Device) int { return cmp.Compare(a.Name, b.Name) })
	if len(list) == len(m.devices[node]) && (len(list) == 0 || reflect.DeepEqual(list, m.devices[node])) {
		return false
	}
	delete(m.devices, node)
	if len(list) > 0 {
		m.devices[node] = list
	}
	m.Events = append(m.Events, ledger.Event{
		Type: ledger.DevicesUpdated, Node: node,
		EventDetails: ledger.EventDetails{NodeDevices: list},
	})
	for _, h := range m.slots {
		if h.Node != node || h.Devices == nil || h.Devices.Err != "" || len(list) == 0 {
			continue
		}
		p := devices.NewPool(list)
		free := p.NewSet()
		for k := range p.Len() {
			if !p.Device(k).Unschedulable && m.unused(node, p.Device(k), h) {
				free.Add(k)
			}
		}
		given := giveEach(p, free, h.Devices, h.given)
		if !reflect.DeepEqual(given, h.given) {
			h.given = given
			m.tellSlot(ledger.SlotPlaced, h, h.Pod)
		}
	}
	return true
}

// has reports whether a device is one of those given.
func has(given []ledger.GivenDevices, d *devices.Device) bool {
	return slices.ContainsFunc(given, func(g ledger.GivenDevices) bool {
		return (g.Resource == d.Resource || g.Resource == "") && slices.Contains(g.IDs, d.ID)
	})
}

// lost returns the IDs of those devices of a slot that its node has not.
func (m *Model) lost(view *ledger.SlotView) (ids []string) {
	for _, g := range view.Given {
		for _, id := range g.IDs {
			if !slices.ContainsFunc(m.devices[view.Node], func(d devices.Device) bool {
				return d.ID == id && (d.Resource == g.Resource || g.Resource == "")
			}) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// unused reports whether no pod of the node has a device and no slot but one keeps it.
func (m *Model) unused(node string, d *devices.Device, but *modelSlot) bool {
	for _, c := range m.allocations {
		if c.node == node && has(c.given, d) {
			return false
		}
	}
	for _, h := range m.slots {
		if h.Node == node && h != but && has(h.given, d) {
			return false
		}
	}
	return true
}

// pool returns the devices of a node, those of them that can be given out, and those
// that are a slot's.
func (m *Model) pool(node string, by *modelSlot) (p *devices.Pool, free, preferred devices.Set) {
	p = devices.NewPool(m.devices[node])
	free, preferred = p.NewSet(), p.NewSet()
	for k := range p.Len() {
		d := p.Device(k)
		held := by != nil && has(by.given, d)
		closed := by != nil && by.Policy == ledger.Restricted && !held &&
			slices.ContainsFunc(by.given, func(g ledger.GivenDevices) bool { return g.Resource == d.Resource })
		if !d.Unschedulable && !closed && m.unused(node, d, by) {
			free.Add(k)
		}
		if held {
			preferred.Add(k)
		}
	}
	return p, free, preferred
}

// give chooses devices for requests; ok is false where they do not fit.
func (m *Model) give(node string, r *ledger.DeviceRequest, by *modelSlot) (given []ledger.GivenDevices, ok bool) {
	p, free, preferred := m.pool(node, by)
	choice, v := p.Choose(free, preferred, r.Requests)
	return named(p, r, choice), v.Reason == devices.Fits
}

func named(p *devices.Pool, r *ledger.DeviceRequest, choice [][]int) []ledger.GivenDevices {
	given := []ledger.GivenDevices{}
	for k, request := range r.Requests {
		g := ledger.GivenDevices{Resource: request.Resource()}
		if len(r.Claims) > k {
			g.Claim = r.Claims[k]
		}
		if choice != nil {
			for _, d := range choice[k] {
				g.IDs = append(g.IDs, p.Device(d).ID)
			}
		}
		given = append(given, g)
	}
	return given
}

// giveEach gives each request by itself what it can be given, unless it has some.
func giveEach(p *devices.Pool, free devices.Set, r *ledger.DeviceRequest,
	soFar []ledger.GivenDevices,
) []ledger.GivenDevices {
	given := named(p, r, nil)
	for k, request := range r.Requests {
		if k < len(soFar) && len(soFar[k].IDs) > 0 {
			given[k] = soFar[k]
		} else if choice, v := p.Choose(free, nil, []*devices.Request{request}); v.Reason == devices.Fits {
			for _, d := range choice[0] {
				given[k].IDs = append(given[k].IDs, p.Device(d).ID)
			}
		}
		for d := range p.Len() {
			if has(given[k:k+1], p.Device(d)) {
				free.Remove(d)
			}
		}
	}
	return given
}

// owners returns who has the first claim of a pod's that somebody else has.
func (m *Model) owners(p *ledger.Placement, by *modelSlot) (ref ledger.DeviceClaimRef, owners []ledger.Holder) {
	for _, ref := range p.Devices.Claims {
		is := func(g ledger.GivenDevices) bool {
			sameUID := g.Claim.UID == ref.UID || g.Claim.UID == "" || ref.UID == ""
			return g.Claim.Namespace == ref.Namespace && g.Claim.Name == ref.Name && sameUID
		}
		for _, c := range m.allocations {
			mine := slices.Contains(m.keptInMemory(p.Pod), c)
			if !mine && slices.ContainsFunc(c.given, is) {
				owners = append(owners, holderOf(c, 1))
			}
		}
		for _, h := range m.slots {
			if h != by && !h.isFor(p.Pod) && slices.ContainsFunc(h.given, is) {
				owners = append(owners, keeperOf(h, 1))
			}
		}
		if len(owners) > 0 {
			return ref, owners
		}
	}
	return ledger.DeviceClaimRef{}, nil
}

// claimsUsable checks what slots of a pod's claims wherever it goes.
func (m *Model) claimsUsable(p *ledger.Placement, by *modelSlot) ledger.Verdict {
	if p.Devices == nil {
		return ledger.Verdict{}
	}
	if p.Devices.Err != "" {
		return ledger.Verdict{Reason: ledger.DeviceClaimUnusable}
	}
	if _, owners := m.owners(p, by); len(owners) > 0 {
		return ledger.Verdict{Reason: ledger.DeviceClaimInUse}
	}
	return ledger.Verdict{}
}

// fits decides whether a pod that has no claim fits a node, its devices included.
func (m *Model) fits(node string, p *ledger.Placement, by *modelSlot) ledger.Verdict {
	return m.fitsFor(ownersOf(p), node, p, by)
}

// fitsFor is fits for what belongs to somebody.
func (m *Model) fitsFor(who owners, node string, p *ledger.Placement, by *modelSlot) ledger.Verdict {
	if n := m.nodes[node]; n == nil || !n.exists {
		return ledger.Verdict{Reason: ledger.NodeUnknown}
	}
	if v := m.over(who, p.Request, by, nil); v.Reason != ledger.Fits {
		return v
	}
	if v := m.claimsUsable(p, by); v.Reason != ledger.Fits {
		return v
	}
	return m.withDevices(m.verdict(node, p.Request, false, by, rankOf(p, nil)), node, p, by, func() bool {
		_, ok := m.give(node, p.Devices, by)
		return ok
	})
}

// sameAsked reports whether a pod asks for what its claim was given devices for.
func (c *modelAllocation) sameAsked(r *ledger.DeviceRequest) bool {
	return sameDevices(c.devices, r, func(a, b ledger.DeviceClaimRef) bool { return a == b })
}

// sameName compares claims of which one may be known by its name only.
func sameName(a, b ledger.DeviceClaimRef) bool {
	return a.Namespace == b.Namespace && a.Name == b.Name && !another(a.UID, b.UID)
}

func sameDevices(a, b *ledger.DeviceRequest, sameClaim func(a, b ledger.DeviceClaimRef) bool) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	texts := func(r *ledger.DeviceRequest) (texts []string) {
		for _, request := range r.Requests {
			texts = append(texts, request.String())
		}
		return texts
	}
	return a.Err == b.Err && slices.EqualFunc(a.Claims, b.Claims, sameClaim) && slices.Equal(texts(a), texts(b))
}

// devicesInPlace tells whether a pod with a claim can have its devices: m does not
// have the claim.
func (m *Model) devicesInPlace(c *modelAllocation, p *ledger.Placement, by *modelSlot) (ok bool) {
	if !c.sameAsked(p.Devices) {
		_, ok = m.give(c.node, p.Devices, by)
		return ok
	}
	pool, _, _ := m.pool(c.node, by)
	for _, g := range c.given {
		for _, id := range g.IDs {
			if k, exists := pool.Find(g.Resource, id); !exists || !m.unused(c.node, pool.Device(k), by) {
				return false
			}
		}
	}
	return true
}

// setDevices gives a claim, which m need not have, what its pod asks for.
func (m *Model) setDevices(c *modelAllocation, r *ledger.DeviceRequest) {
	if c.sameAsked(r) && r != nil {
		return
	}
	c.devices, c.given = r, nil
	if r != nil {
		others := m.only(func(o *modelAllocation) bool { return o != c }, anySlot)
		c.given, _ = others.give(c.node, r, others.slot(c.uses))
	}
}

// observedGiven is what a slot that is observed is taken to keep: its pods' devices
// first.
func (m *Model) observedGiven(spec *ledger.Slot) []ledger.GivenDevices {
	r := spec.Devices
	if r == nil {
		return nil
	}
	p, free, _ := m.pool(spec.Node, nil)
	if before := readHeld(p, r); before != nil {
		return before
	}
	preferred := p.NewSet()
	for _, c := range m.allocations {
		for k := range p.Len() {
			if c.node == spec.Node && c.boundWith == spec.Ref && has(c.given, p.Device(k)) {
				free.Add(k)
				preferred.Add(k)
			}
		}
	}
	if choice, v := p.Choose(free, preferred, r.Requests); v.Reason == devices.Fits {
		return named(p, r, choice)
	}
	return giveEach(p, free, r, nil)
}

// readHeld is what a slot says that it was given, if it is as many as it asks for.
func readHeld(p *devices.Pool, r *ledger.DeviceRequest) []ledger.GivenDevices {
	given, ids := named(p, r, nil), strings.Split(r.Given, ",")
	for k, request := range r.Requests {
		for range request.Count() {
			if len(ids) == 0 || r.Given == "" {
				return nil
			}
			given[k].IDs, ids = append(given[k].IDs, ids[0]), ids[1:]
		}
	}
	if len(ids) > 0 {
		return nil
	}
	return given
}

// refuseDevices explains what is the matter with a pod's claims. m does not have the
// pod's own claim.
func (m *Model) refuseDevices(r *ledger.Rejection, p *ledger.Placement, own *modelAllocation) {
	others, by := m, (*modelSlot)(nil)
	if own != nil {
		others, by = m.only(func(c *modelAllocation) bool { return c != own }, anySlot), m.slot(own.uses)
	}
	switch r.Reason {
	case ledger.DeviceClaimUnusable:
		r.Detail = p.Devices.Err
		return
	case ledger.DeviceClaimInUse:
		r.DeviceClaim, r.Holders = others.owners(p, by)
		return
	}
	pool, free, _ := others.pool(r.Node, by)
	v := pool.Fits(free, p.Devices.Requests)
	r.Detail = v.Explain(p.Devices.Requests)
	switch {
	case pool.Len() == 0:
		v.Have = 0
		r.Detail = p.Devices.Requests[0].String() + ": the node has no devices"
		v.Request = 0
	case v.Reason == devices.Fits:
		r.Detail = "one of the devices it was given is gone, or in use"
	}
	request := p.Devices.Requests[v.Request]
	r.Resource, r.Requested, r.Free = request.Resource(), int64(request.Count()), int64(v.Have)
	if len(p.Devices.Claims) > v.Request {
		r.DeviceClaim = p.Devices.Claims[v.Request]
	}
}

// deviceViews returns a node's devices as readers of the ledger see them.
func (m *Model) deviceViews(node string) []ledger.DeviceView {
	p, free, _ := m.pool(node, nil)
	var views []ledger.DeviceView
	for k := range p.Len() {
		d := p.Device(k)
		view := ledger.DeviceView{Device: *d, Free: free.Has(k)}
		for _, c := range m.allocations {
			if c.node == node && has(c.given, d) {
				view.Pods = append(view.Pods, c.pod)
			}
		}
		slices.SortFunc(view.Pods, comparePods)
		for _, h := range m.SlotViews() {
			if !h.InMemory() && h.Node == node && has(h.Given, d) && view.Slot.Name == "" {
				view.Slot = h.Ref
			}
		}
		views = append(views, view)
	}
	return views
}

// keptDevices returns how many devices a slot keeps of the resources a pod claims.
func (m *Model) keptDevices(h *modelSlot, p *ledger.Placement) *big.Int {
	kept := int64(0)
	for _, g := range h.given {
		if p.Devices != nil && slices.ContainsFunc(p.Devices.Requests,
			func(r *devices.Request) bool { return r.Resource() == g.Resource }) {
			kept += int64(len(g.IDs))
		}
	}
	return big.NewInt(kept)
}

// ids lists the IDs of a claim's devices.
func (c *modelAllocation) ids() (ids []string) {
	for _, g := range c.given {
		ids = append(ids, g.IDs...)
	}
	return ids
}
