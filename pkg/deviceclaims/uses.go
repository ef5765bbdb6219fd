package deviceclaims

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// use is one claim that serves a pod.
type use struct {
	pod   ledger.PodRef
	node  string
	bound bool // else it is reserved, or being bound
	claim ledger.DeviceClaimRef
	// resource is empty where the claim was not known when the pod was found bound.
	resource string
	ids      []string
}

// devices returns what the claim was given.
func (u *use) devices() []identity {
	all := make([]identity, 0, len(u.ids))
	for _, id := range u.ids {
		all = append(all, identity{u.node, u.resource, id})
	}
	return all
}

// uses is who has what, as far as the ledger's events are read.
type uses struct {
	byPod    map[ledger.PodRef][]*use
	byClaim  map[types.NamespacedName][]*use
	byDevice map[identity][]*use
}

func newUses() uses {
	return uses{
		byPod: map[ledger.PodRef][]*use{}, byClaim: map[types.NamespacedName][]*use{}, byDevice: map[identity][]*use{},
	}
}

// set replaces what a pod has and returns the uses that came or went.
func (s *uses) set(pod ledger.PodRef, now []*use) (changed []*use) {
	for _, u := range s.byPod[pod] {
		dropFrom(s.byClaim, claimKey(u.claim), u)
		for _, d := range u.devices() {
			dropFrom(s.byDevice, d, u)
		}
		changed = append(changed, u)
	}
	delete(s.byPod, pod)
	if len(now) > 0 {
		s.byPod[pod] = now
	}
	for _, u := range now {
		s.byClaim[claimKey(u.claim)] = append(s.byClaim[claimKey(u.claim)], u)
		for _, d := range u.devices() {
			s.byDevice[d] = append(s.byDevice[d], u)
		}
	}
	return append(changed, now...)
}

func dropFrom[K comparable](m map[K][]*use, key K, u *use) {
	left := slices.DeleteFunc(slices.Clone(m[key]), func(other *use) bool { return other == u })
	if m[key] = left; len(left) == 0 {
		delete(m, key)
	}
}

// ofDevice returns the uses of a device: by its resource, or by its ID alone where the resource is not known.
func (s *uses) ofDevice(key identity) []*use {
	exact := s.byDevice[key]
	if key.resource == "" {
		return exact
	}
	return append(slices.Clone(exact), s.byDevice[identity{key.node, "", key.id}]...)
}

// of returns the use that the claim of an object serves now: that of a bound pod before one that is only
// reserved; nil where there is none.
func (s *uses) of(key types.NamespacedName, uid types.UID) *use {
	var found *use
	for _, u := range s.byClaim[key] {
		if u.claim.UID != "" && u.claim.UID != uid {
			continue
		}
		if found == nil || (u.bound && !found.bound) || (u.bound == found.bound && u.pod.Name < found.pod.Name) {
			found = u
		}
	}
	return found
}

// boundTo returns the use of a device by a bound pod, nil where there is none.
func (s *uses) boundTo(key identity) *use {
	var found *use
	for _, u := range s.ofDevice(key) {
		if u.bound && (found == nil || u.pod.Name < found.pod.Name) {
			found = u
		}
	}
	return found
}

func claimKey(ref ledger.DeviceClaimRef) types.NamespacedName {
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
}

// note takes in one event. c.mu is held.
func (c *Controller) note(e *ledger.Event) {
	switch e.Type {
	case ledger.AllocationIdentified, ledger.SlotIdentified:
		c.refresh(ledger.PodRef{Namespace: e.Pod.Namespace, Name: e.Pod.Name})
		c.refresh(e.Pod)
	case ledger.SlotPlaced, ledger.SlotReleased, ledger.SlotExpired:
		if e.Slot.Name == "" { // what keeps devices for pods to come is not a use of them
			c.refreshKnown(e)
		}
	case ledger.AllocationBinding, ledger.AllocationBound, ledger.AllocationMoved, ledger.AllocationResized, ledger.AllocationLinked,
		ledger.AllocationBindFailed, ledger.AllocationRemoved:
		c.refreshKnown(e)
	case ledger.NodeUpdated, ledger.NodeRemoved:
		for _, name := range c.devices.namesOn(e.Node) {
			c.queue.Add(object{name: name})
		}
	}
}

// refreshKnown looks at what a pod has now, if it is one that has devices. c.mu is held.
func (c *Controller) refreshKnown(e *ledger.Event) {
	if _, had := c.uses.byPod[e.Pod]; had || len(e.Given) > 0 {
		c.refresh(e.Pod)
	}
}

// refresh looks at what a pod has now, or is kept for it in memory. c.mu is held.
func (c *Controller) refresh(pod ledger.PodRef) {
	var now []*use
	if view, ok := c.Ledger.Allocation(pod); ok && view.Pod == pod {
		now = usesOf(pod, view.Node, view.State == ledger.Bound, view.Given)
	} else if slot, ok := c.Ledger.InMemory(pod); ok && slot.Pod == pod {
		now = usesOf(pod, slot.Node, false, slot.Given)
	}
	c.setUses(pod, now)
}

func usesOf(pod ledger.PodRef, node string, bound bool, given []ledger.GivenDevices) (all []*use) {
	for _, g := range given {
		all = append(all, &use{pod: pod, node: node, bound: bound, claim: g.Claim, resource: g.Resource, ids: g.IDs})
	}
	return all
}

// setUses notes what a pod has now and has the objects that are concerned brought up to date. c.mu is held.
func (c *Controller) setUses(pod ledger.PodRef, now []*use) {
	for _, u := range c.uses.set(pod, now) {
		if u.claim.Name != "" {
			c.queue.Add(object{namespace: u.claim.Namespace, name: u.claim.Name})
		}
		for _, key := range u.devices() {
			for _, name := range c.objectsOf(key) {
				c.queue.Add(object{name: name})
			}
		}
	}
}

// objectsOf returns the names of the objects that are a device. c.mu is held.
func (c *Controller) objectsOf(key identity) []string {
	if key.resource != "" {
		return c.devices.byIdentity[key]
	}
	return slices.DeleteFunc(c.devices.namesOn(key.node), func(name string) bool {
		return c.devices.byName[name].Spec.DeviceID != key.id
	})
}

// rebuild is for when more has happened than the ledger remembers, and for the start. c.mu is held.
func (c *Controller) rebuild() {
	now := map[ledger.PodRef][]*use{}
	views, _ := c.Ledger.Allocations()
	for _, v := range views {
		if len(v.Given) > 0 {
			now[v.Pod] = usesOf(v.Pod, v.Node, v.State == ledger.Bound, v.Given)
		}
	}
	slots, _ := c.Ledger.Slots()
	for _, v := range slots {
		if v.InMemory() && len(v.Given) > 0 {
			now[v.Pod] = usesOf(v.Pod, v.Node, false, v.Given)
		}
	}
	for pod := range c.uses.byPod {
		if _, still := now[pod]; !still {
			c.setUses(pod, nil)
		}
	}
	for pod, all := range now {
		c.setUses(pod, all)
	}
	for name := range c.devices.byName {
		c.queue.Add(object{name: name})
	}
	for _, key := range c.claims.keys() {
		c.queue.Add(object{namespace: key.Namespace, name: key.Name})
	}
}

// takeStock has everything brought up to date once pods and nodes are in.
func (c *Controller) takeStock() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.CatchUp()
	c.rebuild()
}
