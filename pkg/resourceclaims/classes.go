package resourceclaims

import (
	"cmp"
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/cluster"
)

// offers tell where DRA gives devices for resources that pods ask for by count: where a slice has a device that a
// DeviceClass selects, for the resource of the class's spec.extendedResourceName, and for the one of its own name. Make
// them with newOffers.
type offers struct {
	onOffered func(slice string, offered []cluster.DRAOffer)

	mu     sync.Mutex // guards what follows, and orders what is told
	listed bool       // all classes have been observed: nothing is told before
	byName map[string]*class
	slices map[string]*resourcev1.ResourceSlice
}

// class is a DeviceClass.
type class struct {
	*resourcev1.DeviceClass

	selectors []cel.CompilationResult // a device has to meet all of them
}

// newOffers returns offers that know of no class. onOffered is called with what a slice offers, each time that may have
// changed. It must not call the offers.
func newOffers(onOffered func(slice string, offered []cluster.DRAOffer)) *offers {
	return &offers{
		onOffered: onOffered, byName: map[string]*class{}, slices: map[string]*resourcev1.ResourceSlice{},
	}
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
		return // every list anew tells of each class
	}
	o.byName[now.Name] = &class{now, compile(now.Spec.Selectors)}
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
	o.slices[now.Name] = now
	if o.listed {
		o.onOffered(now.Name, o.of(now))
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
	for name, s := range o.slices {
		o.onOffered(name, o.of(s))
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

// of returns what a slice offers, on each node, or for each selector of nodes.
func (o *offers) of(s *resourcev1.ResourceSlice) (offered []cluster.DRAOffer) {
	for i := range s.Spec.Devices {
		device := &s.Spec.Devices[i]
		on, ok := nodesOf(s, device)
		if !ok {
			continue
		}
		k := slices.IndexFunc(offered, func(other cluster.DRAOffer) bool {
			return other.Node == on.Node && other.Nodes == nil && on.Nodes == nil
		})
		if k < 0 {
			k = len(offered)
			offered = append(offered, on)
		}
		offered[k].Resources = o.appendResources(offered[k].Resources, s.Spec.Driver, device)
	}
	for i := range offered {
		slices.Sort(offered[i].Resources)
	}
	return slices.DeleteFunc(offered, func(o cluster.DRAOffer) bool { return len(o.Resources) == 0 })
}

// nodesOf says on which nodes a device is.
func nodesOf(s *resourcev1.ResourceSlice, d *resourcev1.Device) (on cluster.DRAOffer, ok bool) {
	node, selector, all := s.Spec.NodeName, s.Spec.NodeSelector, s.Spec.AllNodes
	if ptr.Deref(s.Spec.PerDeviceNodeSelection, false) {
		node, selector, all = d.NodeName, d.NodeSelector, d.AllNodes
	}
	if selector != nil {
		parsed, err := nodeaffinity.NewNodeSelector(selector)
		return cluster.DRAOffer{Nodes: parsed}, err == nil
	}
	return cluster.DRAOffer{Node: ptr.Deref(node, "")}, node != nil || ptr.Deref(all, false)
}

// appendResources adds the resources of the classes that select a device, and that are not there yet.
func (o *offers) appendResources(names []v1.ResourceName, driver string, d *resourcev1.Device) []v1.ResourceName {
	for _, c := range o.byName {
		known := func(name v1.ResourceName) bool { return slices.Contains(names, name) }
		missing := slices.DeleteFunc(o.resourcesOf(c), known)
		if len(missing) > 0 && c.selects(driver, d) {
			names = append(names, missing...)
		}
	}
	return names
}

// resourcesOf returns what a class stands for. Where several name one resource, it is for the newest of them, and of
// equals for the first by name, as kube-scheduler has it.
func (o *offers) resourcesOf(c *class) []v1.ResourceName {
	names := []v1.ResourceName{v1.ResourceName(resourcev1.ResourceDeviceClassPrefix + c.Name)}
	if c.Spec.ExtendedResourceName == nil {
		return names
	}
	for _, other := range o.byName {
		if ptr.Equal(other.Spec.ExtendedResourceName, c.Spec.ExtendedResourceName) && other.comesBefore(c) {
			return names
		}
	}
	return append(names, v1.ResourceName(*c.Spec.ExtendedResourceName))
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

// leanClass is a cache.TransformFunc.
func leanClass(obj any) (any, error) {
	full, ok := obj.(*resourcev1.DeviceClass)
	if !ok {
		return obj, nil
	}
	return &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion, CreationTimestamp: full.CreationTimestamp,
		},
		Spec: resourcev1.DeviceClassSpec{
			Selectors: full.Spec.Selectors, ExtendedResourceName: full.Spec.ExtendedResourceName,
		},
	}, nil
}
