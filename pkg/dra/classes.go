package dra

import (
	"cmp"
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
)

// offers know where DRA gives devices for resources that pods ask for by count: where a slice has a device that a
// DeviceClass selects, for the resource of the class's spec.extendedResourceName, and for the one of its own name. Make
// them with newOffers. The selectors of a class that changes are tried on all devices, and those of all classes on a
// slice that changes: what was found is remembered.
type offers struct {
	onOffered func(slice string, offered []cluster.DRAOffer)

	mu     sync.Mutex // guards what follows, and orders the calls of onOffered
	listed bool       // all classes have been observed: nothing is offered before
	byName map[string]*class
	slices map[string]*slice
}

// class is a DeviceClass.
type class struct {
	*resourcev1.DeviceClass

	selectors []cel.CompilationResult // a device has to meet all of them
}

// slice is a ResourceSlice, and where its devices are.
type slice struct {
	*resourcev1.ResourceSlice

	places []place
}

// place is the devices of a slice that are on the same nodes.
type place struct {
	node     string           // one node, or empty
	selector *v1.NodeSelector // where node is empty: the nodes; nil for all of them
	devices  []*resourcev1.Device
	classes  map[string]bool // those that select one of the devices
}

// newOffers returns offers that know of no class. onOffered is called with what a slice offers, each time that may have
// changed. It must not call the offers.
func newOffers(onOffered func(slice string, offered []cluster.DRAOffer)) *offers {
	return &offers{onOffered: onOffered, byName: map[string]*class{}, slices: map[string]*slice{}}
}

// allListed says that all classes there are have been observed.
func (o *offers) allListed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listed = true
	o.tellAll()
}

// observeClass takes in a class as it is now.
func (o *offers) observeClass(now *resourcev1.DeviceClass) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known := o.byName[now.Name]; known != nil && known.UID == now.UID &&
		equality.Semantic.DeepEqual(known.Spec, now.Spec) {
		return // every list anew delivers each class
	}
	c := &class{now, compile(now.Spec.Selectors)}
	o.byName[now.Name] = c
	for _, s := range o.slices {
		s.try(c)
	}
	o.tellAll()
}

// forgetClass takes in that a class is gone.
func (o *offers) forgetClass(last *resourcev1.DeviceClass) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.byName, last.Name)
	o.tellAll()
}

func (o *offers) observeSlice(now *resourcev1.ResourceSlice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known := o.slices[now.Name]; known != nil && equality.Semantic.DeepEqual(known.Spec, now.Spec) {
		return
	}
	s := &slice{now, placesOf(now)}
	o.slices[now.Name] = s
	for _, c := range o.byName {
		s.try(c)
	}
	if o.listed {
		o.onOffered(now.Name, s.offered(o.resources()))
	}
}

func (o *offers) forgetSlice(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.slices, name)
	o.onOffered(name, nil)
}

func (o *offers) tellAll() {
	if !o.listed {
		return
	}
	resources := o.resources()
	for name, s := range o.slices {
		o.onOffered(name, s.offered(resources))
	}
}

// compile reads the selectors of a class. One that cannot be read selects nothing.
func compile(selectors []resourcev1.DeviceSelector) (compiled []cel.CompilationResult) {
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})
	for _, s := range selectors {
		var expression string
		if s.CEL != nil {
			expression = s.CEL.Expression
		}
		compiled = append(compiled, compiler.CompileCELExpression(expression, cel.Options{DisableCostEstimation: true}))
	}
	return compiled
}

// placesOf says where the devices of a slice are.
func placesOf(s *resourcev1.ResourceSlice) (places []place) {
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		node, selector, all := s.Spec.NodeName, s.Spec.NodeSelector, s.Spec.AllNodes
		if ptr.Deref(s.Spec.PerDeviceNodeSelection, false) {
			node, selector, all = d.NodeName, d.NodeSelector, d.AllNodes
		}
		if node == nil && selector == nil && !ptr.Deref(all, false) {
			continue
		}
		on := place{node: ptr.Deref(node, ""), selector: selector}
		k := slices.IndexFunc(places, func(other place) bool { return other.isAt(&on) })
		if k < 0 {
			k = len(places)
			on.classes = map[string]bool{}
			places = append(places, on)
		}
		places[k].devices = append(places[k].devices, d)
	}
	return places
}

func (p *place) isAt(other *place) bool {
	return p.node == other.node &&
		(p.selector == other.selector || equality.Semantic.DeepEqual(p.selector, other.selector))
}

// try finds out where a class selects devices of the slice.
func (s *slice) try(c *class) {
	for i := range s.places {
		p := &s.places[i]
		p.classes[c.Name] = slices.ContainsFunc(p.devices, func(d *resourcev1.Device) bool {
			return c.selects(s.Spec.Driver, d)
		})
	}
}

// offered returns what a slice offers, given what each class stands for.
func (s *slice) offered(resources map[string][]v1.ResourceName) (offered []cluster.DRAOffer) {
	for i := range s.places {
		p := &s.places[i]
		on := cluster.DRAOffer{Node: p.node, Selector: p.selector}
		for name, names := range resources {
			if p.classes[name] {
				on.Resources = append(on.Resources, names...)
			}
		}
		if len(on.Resources) > 0 {
			slices.Sort(on.Resources)
			offered = append(offered, on)
		}
	}
	return offered
}

// resources returns what each class stands for. Where several name one resource, it is for the newest of them, and of
// equals for the first by name, as kube-scheduler has it.
func (o *offers) resources() map[string][]v1.ResourceName {
	names, first := map[string][]v1.ResourceName{}, map[string]*class{}
	for name, c := range o.byName {
		names[name] = []v1.ResourceName{v1.ResourceName(resourcev1.ResourceDeviceClassPrefix + name)}
		if resource := c.Spec.ExtendedResourceName; resource != nil {
			if other := first[*resource]; other == nil || c.comesBefore(other) {
				first[*resource] = c
			}
		}
	}
	for resource, c := range first {
		names[c.Name] = append(names[c.Name], v1.ResourceName(resource))
	}
	return names
}

func (c *class) comesBefore(other *class) bool {
	return cmp.Or(other.CreationTimestamp.Compare(c.CreationTimestamp.Time), cmp.Compare(c.Name, other.Name)) < 0
}

// selects says whether a device is of the class. kube-scheduler gives none where a selector fails.
func (c *class) selects(driver string, d *resourcev1.Device) bool {
	input := cel.Device{
		Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
	}
	for i := range c.selectors {
		if c.selectors[i].Error != nil {
			return false
		}
		matches, _, err := c.selectors[i].DeviceMatches(context.Background(), input)
		if err != nil || !matches {
			return false
		}
	}
	return true
}
