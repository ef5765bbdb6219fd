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
}

// allotment is which devices a claim has.
type allotment struct {
	request *DeviceRequest // nil in replicas, which are not told
	given   []GivenDevices
	said    bool // the pod was seen bound, and said so
}

// deviceOwner is who has a claim of devices: a pod's claim, or a hold kept for the pod.
type deviceOwner struct {
	uid   types.UID // of the claim of devices
	claim *claim
	hold  *hold
}

// observeDevices replaces the devices of a node.
func (l *account) observeDevices(name string, list []devices.Device) bool {
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
	if len(list) > 0 {
		n.devices = &nodeDevices{listed: list, pool: devices.NewPool(list)}
		l.recountDevices(i)
	}
	l.recordNode(DevicesUpdated, name, &rareChange{nodeDevices: list})
	l.supply(i)
	l.dropIfEmpty(i)
	return true
}

func sameDevice(a, b devices.Device) bool {
	return a.Name == b.Name && a.Resource == b.Resource && a.ID == b.ID && a.Unschedulable == b.Unschedulable &&
		maps.Equal(a.Properties, b.Properties)
}

// supply gives devices to the holds of a node that were recorded, as holds observed
// are, while the node had too few for them.
func (l *account) supply(i int32) {
	for _, h := range l.nodes[i].holds {
		if l.nodes[i].devices == nil || !h.lacksDevices() {
			continue
		}
		given := l.giveEach(i, h.Devices, l.nodes[i].countFreeDevices(h), h.given)
		if slices.EqualFunc(given, h.given, sameGiven) {
			continue
		}
		l.regive(h, given)
		l.recordHold(HoldPlaced, h, h.Pod)
	}
}

// regive makes a hold keep other devices.
func (l *account) regive(h *hold, given []GivenDevices) {
	l.disown(h.node, h.given, deviceOwner{hold: h})
	h.given = given
	l.own(h.node, given, deviceOwner{hold: h})
}

// lacksDevices reports whether a hold has fewer devices than it is to keep.
func (h *hold) lacksDevices() bool {
	if h.Devices == nil || h.Devices.Err != "" {
		return false
	}
	for k, r := range h.Devices.Requests {
		if len(h.given[k].IDs) < r.Count() {
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
	}
}

// freeDevices returns the devices of a node that can be given out to those who use a hold,
// or, where h is nil, to anybody.
func (n *node) freeDevices(h *hold) devices.Set {
	if h == nil {
		return n.devices.free
	}
	free := n.countFreeDevices(h)
	if h.Policy == Restricted {
		held := n.devices.setOf(h.given)
		for k := range n.devices.pool.Len() {
			if h.namesResource(n.devices.pool.Device(k).Resource) && !held.Has(k) {
				free.Remove(k)
			}
		}
	}
	return free
}

func (h *hold) namesResource(name string) bool {
	return slices.ContainsFunc(h.given, func(g GivenDevices) bool { return g.Resource == name })
}

func (n *node) countFreeDevices(but *hold) devices.Set {
	free := n.devices.pool.Schedulable()
	n.takeUsed(free, but)
	return free
}

// takeUsed takes out of a set what claims have and holds but one keep.
func (n *node) takeUsed(set devices.Set, but *hold) {
	for c := n.claims; c != nil; c = c.next {
		if c.devices != nil {
			n.devices.visit(c.devices.given, set.Remove)
		}
	}
	for _, h := range n.holds {
		if h.given != nil && h != but {
			n.devices.visit(h.given, set.Remove)
		}
	}
}

// visit calls f for every device of the node that is among those given.
func (d *nodeDevices) visit(given []GivenDevices, f func(int)) {
	for _, g := range given {
		for _, id := range g.IDs {
			if g.Resource == "" {
				d.visitID(id, f)
			} else if k, ok := d.pool.Find(g.Resource, id); ok {
				f(k)
			}
		}
	}
}

// visitID calls f for every device with an ID, whatever its resource.
func (d *nodeDevices) visitID(id string, f func(int)) {
	for k := range d.pool.Len() {
		if d.pool.Device(k).ID == id {
			f(k)
		}
	}
}

func (d *nodeDevices) setOf(given []GivenDevices) devices.Set {
	set := d.pool.NewSet()
	d.visit(given, set.Add)
	return set
}

// own records that a claim or a hold on a node has devices.
func (l *account) own(i int32, given []GivenDevices, by deviceOwner) {
	for _, g := range given {
		if g.Claim.Name != "" {
			by.uid = g.Claim.UID
			l.deviceOwners[g.Claim.key()] = append(l.deviceOwners[g.Claim.key()], by)
		}
	}
	l.recountDevices(i)
}

// disown takes that back.
func (l *account) disown(i int32, given []GivenDevices, by deviceOwner) {
	for _, g := range given {
		if g.Claim.Name == "" {
			continue
		}
		key := g.Claim.key()
		owners := slices.DeleteFunc(l.deviceOwners[key], func(o deviceOwner) bool { return o.claim == by.claim && o.hold == by.hold })
		if len(owners) == 0 {
			delete(l.deviceOwners, key)
		} else {
			l.deviceOwners[key] = owners
		}
	}
	l.recountDevices(i)
}

// ownerOf finds who else has a claim of devices that a pod asks for: owner is nil
// where nobody has. The hold it uses, and one that is kept for it, are nobody else.
func (l *account) ownerOf(p *Placement, h *hold) (ref DeviceClaimRef, owner *deviceOwner) {
	for _, ref := range p.Devices.Claims {
		owners := l.deviceOwners[ref.key()]
		for k := range owners {
			o := &owners[k]
			same := o.uid == "" || ref.UID == "" || o.uid == ref.UID
			mine := o.hold != nil && (o.hold == h || o.hold.isFor(p.Pod))
			if same && !mine {
				return ref, o
			}
		}
	}
	return DeviceClaimRef{}, nil
}
