package ledger

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/devices"
)

// nodeDevices is a node's account of devices. A node without devices has none.
type nodeDevices struct {
	listed []devices.Device // as they were observed, by name
	pool   *devices.Pool
	free   devices.Set // may be given out, and nobody has or keeps them
	// counted are the resources of the devices that are counted, too, by name.
	counted []counted
}

// deviceGrant is which devices a claim or a slot has.
type deviceGrant struct {
	request *DeviceRequest // nil in replicas, which do not receive claims
	given   []GivenDevices
	said    bool // the pod was seen bound, and said so
}

// deviceOwner is the owner of a claim of devices: the pod with the claim, or a slot kept for the pod.
type deviceOwner struct {
	uid types.UID // of the claim of devices
	by  *entry
}

// given returns the devices something was given, nil where it has no claims of devices.
func (e *entry) given() []GivenDevices {
	if e.devices == nil {
		return nil
	}
	return e.devices.given
}

// asks returns the request that the devices were given for.
func (e *entry) asks() *DeviceRequest {
	if e.devices == nil {
		return nil
	}
	return e.devices.request
}

// ObserveDevices records which devices a node has now and reports whether that was news. What a pod has of devices that
// are gone is kept: should a device with the same resource and ID come back, the pod has it still.
func (l Observer) ObserveDevices(name string, list []devices.Device) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b devices.Device) int { return cmp.Compare(a.Name, b.Name) })
	i, known := l.nodeIndex[name]
	var was []devices.Device
	if known && l.nodes[i].devices != nil {
		was = l.nodes[i].devices.listed
	}
	if slices.EqualFunc(was, list, sameDevice) {
		return false
	}
	i = l.ensureNode(name)
	n := l.nodes[i]
	n.devices = nil
	l.flags[i] &^= hasDevices
	if len(list) > 0 {
		pool := devices.NewPool(list)
		n.devices = &nodeDevices{listed: list, pool: pool, counted: countedOf(l.table, pool)}
		l.flags[i] |= hasDevices
		l.widen()
		l.recountDevices(i)
	}
	l.refresh(i)
	l.recordNode(DevicesUpdated, name, &EventDetails{NodeDevices: list})
	l.supply(i)
	l.dropIfEmpty(i)
	return true
}

func sameDevice(a, b devices.Device) bool {
	return a.Name == b.Name && a.Resource == b.Resource && a.ID == b.ID && a.Unschedulable == b.Unschedulable &&
		maps.Equal(a.Properties, b.Properties)
}

// supply gives devices to the slots of a node that were recorded, as slots observed
// are, while the node had too few for them.
func (l *account) supply(i int32) {
	n := l.nodes[i]
	if n.devices == nil {
		return
	}
	for _, h := range n.reservedSlots() {
		if !h.lacksDevices() {
			continue
		}
		given := n.giveEach(h.devices.request, n.countFreeDevices(h), h.devices.given)
		if slices.EqualFunc(given, h.devices.given, sameGiven) {
			continue
		}
		l.regive(h, &deviceGrant{request: h.devices.request, given: given})
		l.record(SlotPlaced, h, h.pod)
	}
}

// regive makes a slot keep other devices.
func (l *account) regive(h *entry, a *deviceGrant) {
	l.disown(h)
	h.devices = a
	l.own(h)
}

// lacksDevices reports whether a slot has fewer devices than it is to keep.
func (e *entry) lacksDevices() bool {
	r := e.asks()
	if r == nil || r.Err != "" {
		return false
	}
	for k := range r.Requests {
		if len(e.devices.given[k].IDs) < r.Requests[k].Count() {
			return true
		}
	}
	return false
}

// recountDevices counts anew which devices of a node are free. So few pods have
// devices that keeping the count in steps would not pay.
func (l *account) recountDevices(i int32) {
	if n := l.nodes[i]; n.devices != nil {
		n.devices.free = n.countFreeDevices(nil)
		l.recountWithheld(i)
	}
}

// freeDevices returns the devices of a node that can be given out to users of slot h, or, where h is nil, to anybody.
func (n *node) freeDevices(h *entry) devices.Set {
	if h == nil {
		return n.devices.free
	}
	free := n.countFreeDevices(h)
	if h.slot.policy == Restricted {
		held := n.devices.setOf(h.given())
		for k := range n.devices.pool.Len() {
			if h.namesResource(n.devices.pool.Device(k).Resource) && !held.Has(k) {
				free.Remove(k)
			}
		}
	}
	return free
}

func (e *entry) namesResource(name string) bool {
	return slices.ContainsFunc(e.given(), func(g GivenDevices) bool { return g.Resource == name })
}

func (n *node) countFreeDevices(but *entry) devices.Set {
	free := n.devices.pool.Schedulable()
	n.takeUsed(free, but)
	return free
}

// takeUsed removes from a set the devices that any entry except one slot has or keeps.
func (n *node) takeUsed(set devices.Set, but *entry) {
	for e := n.first; e != nil; e = e.next {
		if e.devices != nil && e != but {
			n.devices.visit(e.devices.given, set.Remove)
		}
	}
}

// visit calls f for every device of the node that is among those given.
func (d *nodeDevices) visit(given []GivenDevices, f func(int)) {
	for k := range given {
		d.visitOf(&given[k], f)
	}
}

// visitOf is visit for those of one claim.
func (d *nodeDevices) visitOf(g *GivenDevices, f func(int)) {
	for _, id := range g.IDs {
		if k, ok := d.pool.Find(g.Resource, id); ok {
			f(k)
		}
		for k := 0; g.Resource == "" && k < d.pool.Len(); k++ {
			if d.pool.Device(k).ID == id {
				f(k)
			}
		}
	}
}

// allDevices returns all devices of a node, empty where it has none.
func (n *node) allDevices() (set devices.Set) {
	if n.devices != nil {
		set = n.devices.pool.NewSet()
		for k := range n.devices.pool.Len() {
			set.Add(k)
		}
	}
	return set
}

// without returns the IDs of those devices that are not in a set of the node's.
func (n *node) without(set devices.Set, given []GivenDevices) (ids []string) {
	for k := range given {
		for _, id := range given[k].IDs {
			found := false
			if n.devices != nil {
				n.devices.visitOf(&GivenDevices{Resource: given[k].Resource, IDs: []string{id}}, func(k int) {
					found = found || set.Has(k)
				})
			}
			if !found {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func (d *nodeDevices) setOf(given []GivenDevices) devices.Set {
	set := d.pool.NewSet()
	d.visit(given, set.Add)
	return set
}

// own records that something on a node has devices.
func (l *account) own(e *entry) {
	for _, g := range e.given() {
		if g.Claim.Name != "" {
			l.deviceOwners[g.Claim.key()] = append(l.deviceOwners[g.Claim.key()], deviceOwner{g.Claim.UID, e})
		}
	}
	l.recountDevices(e.node)
}

// disown takes that back.
func (l *account) disown(e *entry) {
	for _, g := range e.given() {
		if g.Claim.Name == "" {
			continue
		}
		key := g.Claim.key()
		owners := slices.DeleteFunc(l.deviceOwners[key], func(o deviceOwner) bool { return o.by == e })
		if len(owners) == 0 {
			delete(l.deviceOwners, key)
		} else {
			l.deviceOwners[key] = owners
		}
	}
	l.recountDevices(e.node)
}

// ownerOf finds what else has a claim of devices that a pod asks for, nil where nothing
// has. The slot that the pod uses, and one that is kept for it, do not count.
func (l *account) ownerOf(p *Placement, h *entry) (ref DeviceClaimRef, owner *entry) {
	for _, ref := range p.Devices.Claims {
		for _, o := range l.deviceOwners[ref.key()] {
			same := o.uid == "" || ref.UID == "" || o.uid == ref.UID
			if same && o.by != h && !o.by.isFor(p.Pod) {
				return ref, o.by
			}
		}
	}
	return DeviceClaimRef{}, nil
}
