package extendeddevices

import (
	"maps"
	"slices"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
)

// identity is what distinguishes the devices of the cluster, whatever their objects are named.
type identity struct{ node, resource, id string }

func identityOf(d *v1alpha1.ExtendedResource) identity {
	return identity{d.Spec.NodeName, d.Spec.ResourceName, d.Spec.DeviceID}
}

// inventory is the objects of devices, by name and by node.
type inventory struct {
	byName map[string]*v1alpha1.ExtendedResource
	byNode map[string]*nodeDevices
}

// nodeDevices is the devices of one node.
type nodeDevices struct {
	names map[string]struct{}
	// pool answers whether claims could be met here if all devices were free.
	pool *devices.Pool
}

func newInventory() inventory {
	return inventory{byName: map[string]*v1alpha1.ExtendedResource{}, byNode: map[string]*nodeDevices{}}
}

// set takes in a state of an object.
func (v *inventory) set(d *v1alpha1.ExtendedResource) {
	if held := v.byName[d.Name]; held != nil && identityOf(held) != identityOf(d) {
		v.remove(d.Name) // another object of the same name
	}
	v.byName[d.Name] = d
	n := v.byNode[d.Spec.NodeName]
	if n == nil {
		n = &nodeDevices{names: map[string]struct{}{}}
		v.byNode[d.Spec.NodeName] = n
	}
	n.names[d.Name] = struct{}{}
}

// remove drops an object and returns it, nil where there is no object of that name.
func (v *inventory) remove(name string) *v1alpha1.ExtendedResource {
	d := v.byName[name]
	if d == nil {
		return nil
	}
	delete(v.byName, name)
	if n := v.byNode[d.Spec.NodeName]; n != nil {
		delete(n.names, name)
	}
	return d
}

// observed returns the devices of a node for the ledger and remembers them as a pool.
func (v *inventory) observed(node string) []devices.Device {
	n := v.byNode[node]
	if n == nil {
		return nil
	}
	if len(n.names) == 0 {
		delete(v.byNode, node)
		return nil
	}
	all := make([]devices.Device, 0, len(n.names))
	for _, name := range v.namesOn(node) {
		d := v.byName[name]
		all = append(all, devices.Device{
			Name: d.Name, Resource: d.Spec.ResourceName, ID: d.Spec.DeviceID,
			Properties: d.Spec.Properties, Unschedulable: d.Spec.Unschedulable,
		})
	}
	n.pool = devices.NewPool(all)
	return all
}

// namesOn returns the names of the devices of a node, in order.
func (v *inventory) namesOn(node string) []string {
	n := v.byNode[node]
	if n == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(n.names))
}

// objectsOf returns the names of the objects that are a device: by its ID alone where the resource is not known. The
// first one stands for it.
func (v *inventory) objectsOf(key identity) []string {
	return slices.DeleteFunc(v.namesOn(key.node), func(name string) bool {
		of := identityOf(v.byName[name])
		return of.id != key.id || (key.resource != "" && of.resource != key.resource)
	})
}
