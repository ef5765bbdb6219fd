package resourceclaims

import (
	"maps"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// classes are the resources that DeviceClasses map to DRA devices: pods ask for these by count, and get devices. They
// are those of spec.extendedResourceName, and one for each class by its name. Make them with newClasses.
type classes struct {
	onMapped func(resources []string)

	mu     sync.Mutex // guards what follows, and orders what is told
	listed bool
	byName map[string]string // the extendedResourceName of each class, "" where it has none
}

// newClasses returns classes that know of none. onMapped is called with the names of all resources that are mapped, in
// order, each time a class is news, once allListed has been called. It must not call the classes.
func newClasses(onMapped func(resources []string)) *classes {
	return &classes{onMapped: onMapped, byName: map[string]string{}}
}

// allListed says that all classes there are have been observed.
func (c *classes) allListed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed = true
	c.tell()
}

// observe takes in a class as it is now.
func (c *classes) observe(class *resourcev1.DeviceClass) {
	name := ""
	if class.Spec.ExtendedResourceName != nil {
		name = *class.Spec.ExtendedResourceName
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.byName[class.Name]; ok && known == name {
		return
	}
	c.byName[class.Name] = name
	c.tell()
}

// forget takes in that a class is gone.
func (c *classes) forget(class *resourcev1.DeviceClass) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byName, class.Name)
	c.tell()
}

// tell says which resources are mapped now, once all classes are known. c.mu is held.
func (c *classes) tell() {
	if !c.listed {
		return
	}
	mapped := map[string]bool{}
	for class, name := range c.byName {
		mapped[resourcev1.ResourceDeviceClassPrefix+class] = true
		if name != "" {
			mapped[name] = true
		}
	}
	c.onMapped(slices.Sorted(maps.Keys(mapped)))
}

// leanClass is a cache.TransformFunc.
func leanClass(obj any) (any, error) {
	full, ok := obj.(*resourcev1.DeviceClass)
	if !ok {
		return obj, nil
	}
	return &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion},
		Spec:       resourcev1.DeviceClassSpec{ExtendedResourceName: full.Spec.ExtendedResourceName},
	}, nil
}
