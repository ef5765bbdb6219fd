package extendeddevices

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// use is one claim that serves a pod, which is bound, being bound, or has a slot in memory.
type use struct {
	*ledger.AllocationView
	given *ledger.GivenDevices
}

func (u *use) bound() bool { return u.State == ledger.Bound }

// among reports whether a device is one of those that were given: by its ID alone where the resource is not known.
func (d *identity) among(g *ledger.GivenDevices) bool {
	return (g.Resource == "" || g.Resource == d.resource) && slices.Contains(g.IDs, d.id)
}

// useOf returns the use that the claim of an object serves now; nil where there is none.
func (c *Controller) useOf(key types.NamespacedName, uid types.UID) *use {
	return first(c.Ledger.DeviceUsers(key.Namespace, key.Name), func(g *ledger.GivenDevices) bool {
		return g.Claim.Name == key.Name && (g.Claim.UID == "" || g.Claim.UID == uid)
	})
}

// boundTo returns the use of a device by a bound pod; nil where there is none.
func (c *Controller) boundTo(d identity) *use {
	_, allocations, _ := c.Ledger.AppendNodeAllocations(nil, d.node)
	if u := first(allocations, d.among); u != nil && u.bound() {
		return u
	}
	return nil
}

// first returns the use that counts of those that are meant: that of a bound pod before one that is only reserved, and
// then the first by name.
func first(pods []ledger.AllocationView, meant func(g *ledger.GivenDevices) bool) (found *use) {
	for i := range pods {
		k := slices.IndexFunc(pods[i].Given, func(g ledger.GivenDevices) bool { return meant(&g) })
		if k < 0 {
			continue
		}
		u := &use{&pods[i], &pods[i].Given[k]}
		if found == nil || (u.bound() && !found.bound()) || (u.bound() == found.bound() && u.Pod.Name < found.Pod.Name) {
			found = u
		}
	}
	return found
}

// note queues the objects that an event concerns. c.mu is held.
func (c *Controller) note(e *ledger.Event) {
	switch e.Type {
	case ledger.NodeUpdated, ledger.NodeRemoved:
		c.bringNode(e.Node)
	case ledger.AllocationMoved, ledger.AllocationResized: // the event does not say what the pod had before
		c.bringNode(e.Node)
		c.bringNode(e.MovedFrom)
		c.bringClaims(e.Pod.UID)
	}
	for k := range e.Given {
		g := &e.Given[k]
		c.bringClaimOf(g)
		for _, id := range g.IDs {
			for _, name := range c.devices.objectsOf(identity{e.Node, g.Resource, id}) {
				c.queue.Add(object{name: name})
			}
		}
	}
}

// bringNode queues the devices of a node. c.mu is held.
func (c *Controller) bringNode(node string) {
	for _, name := range c.devices.namesOn(node) {
		c.queue.Add(object{name: name})
	}
}

// bringClaims queues the claims whose status names a pod, all of them where that is empty.
func (c *Controller) bringClaims(pod types.UID) {
	for _, key := range c.claims.keys(pod) {
		c.queue.Add(object{namespace: key.Namespace, name: key.Name})
	}
}

// bringClaimOf queues the claim that was given devices.
func (c *Controller) bringClaimOf(g *ledger.GivenDevices) {
	if g.Claim.Name != "" {
		c.queue.Add(object{namespace: g.Claim.Namespace, name: g.Claim.Name})
	}
}

// bringAll queues everything: at the start, and when more has happened than the ledger remembers. c.mu is held.
func (c *Controller) bringAll() {
	for name := range c.devices.byName {
		c.queue.Add(object{name: name})
	}
	c.bringClaims("")
}
