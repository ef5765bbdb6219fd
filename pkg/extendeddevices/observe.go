package extendeddevices

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
)

// claim is what is known of one claim.
type claim struct {
	obj     *v1alpha1.ExtendedResourceClaim
	request *devices.Request // nil where err is set
	err     error
	deleted time.Time // when this server learnt that it is being deleted; zero where it is not
}

func newClaim(obj *v1alpha1.ExtendedResourceClaim) *claim {
	spec := obj.Spec
	c := &claim{obj: obj}
	c.request, c.err = devices.Compile(field.NewPath("spec"), &spec)
	if obj.DeletionTimestamp != nil {
		c.deleted = time.Now()
	}
	return c
}

// sameAs reports whether a newer state of a claim differs from the known one in its status at most.
func (c *claim) sameAs(obj *v1alpha1.ExtendedResourceClaim) bool {
	return c.obj.UID == obj.UID && c.obj.Generation == obj.Generation && ownerOf(c.obj) == ownerOf(obj) &&
		(c.obj.DeletionTimestamp == nil) == (obj.DeletionTimestamp == nil)
}

func keyOf(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// observeDevice takes in a state of a device.
func (c *Controller) observeDevice(d *v1alpha1.ExtendedResource, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	former := c.devices.byName[d.Name]
	same := former != nil && former.UID == d.UID && former.Generation == d.Generation
	if former != nil && former.Spec.NodeName != d.Spec.NodeName {
		c.devices.remove(d.Name)
		c.tellLedger(former.Spec.NodeName)
	}
	c.devices.set(d)
	if !same {
		c.tellLedger(d.Spec.NodeName)
		c.bringDevice(identityOf(d))
		if former != nil {
			c.bringDevice(identityOf(former))
		}
	}
	c.queue.Add(object{name: d.Name})
}

// forgetDevice drops a device whose object is gone.
func (c *Controller) forgetDevice(last *v1alpha1.ExtendedResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.devices.remove(last.Name); d != nil {
		c.tellLedger(d.Spec.NodeName)
		c.bringDevice(identityOf(d))
	}
}

// tellLedger passes the devices of a node to the ledger. c.mu is held.
func (c *Controller) tellLedger(node string) {
	if c.listed {
		c.Ledger.ObserveDevices(node, c.devices.observed(node))
	}
}

// bringDevice queues the objects of a device, and the claim that has it. c.mu is held.
func (c *Controller) bringDevice(key identity) {
	for _, name := range c.devices.objectsOf(key) {
		c.queue.Add(object{name: name})
	}
	_, allocations, _ := c.Ledger.AppendNodeAllocations(nil, key.node)
	for i := range allocations {
		for k := range allocations[i].Given {
			if g := &allocations[i].Given[k]; key.among(g) {
				c.bringClaimOf(g)
			}
		}
	}
}

// observeClaim takes in a state of a claim.
func (c *Controller) observeClaim(obj *v1alpha1.ExtendedResourceClaim, _ bool) {
	news := c.claims.set(obj)
	c.queue.Add(object{namespace: obj.Namespace, name: obj.Name})
	c.mu.RLock()
	announce := news && c.listed
	c.mu.RUnlock()
	if announce {
		c.OnClaimChanged(obj.Namespace, obj.Name)
	}
}

// forgetClaim drops a claim whose object is gone. Where a pod gets it from a template it is made again.
func (c *Controller) forgetClaim(obj *v1alpha1.ExtendedResourceClaim) {
	if !c.claims.remove(obj) {
		return
	}
	c.OnClaimChanged(obj.Namespace, obj.Name)
	for _, pod := range c.Pods.ClaimantsOf(obj.Namespace, obj.Name) {
		c.makeFor(pod)
	}
}

// adopt passes the devices that were listed to the ledger, node by node.
func (c *Controller) adopt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed = true
	for _, node := range slices.Collect(maps.Keys(c.devices.byNode)) {
		c.tellLedger(node)
	}
}
