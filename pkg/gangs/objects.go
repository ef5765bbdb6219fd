package gangs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// objects are the objects of one kind in one version.
type objects struct {
	gangs     *Gangs
	kind      *kinds.Compiled
	version   string
	installed *informer.Kind
	watch     *informer.Watch
	first     *informer.Latch // open once they are known, or known not to be there

	mu    sync.RWMutex // guards what follows
	known map[kinds.Key]*object
	// grown are the minimums that objects of whole gangs had before these grew, until Gangs.Settle is called.
	grown map[kinds.Key]int64
}

// object is what is kept of one object.
type object struct {
	metav1.ObjectMeta

	minimum int64
	tasks   map[string]int // see Gang.Tasks
	problem string         // what is wrong with these
	// reference names the object for Events.
	reference *v1.ObjectReference
}

// GetObjectKind implements runtime.Object.
func (*object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Nobody changes an object.
func (o *object) DeepCopyObject() runtime.Object { return o }

func (g *Gangs) newObjects(kind *kinds.Compiled, version string, installed *informer.Kind) *objects {
	o := &objects{
		kind: kind, version: version, installed: installed, first: informer.NewLatch(), gangs: g,
		known: map[kinds.Key]*object{}, grown: map[kinds.Key]int64{},
	}
	resource := schema.GroupVersionResource{Group: kind.Object.Group, Version: version, Resource: kind.Object.Resource}
	o.watch = informer.NewWatch(installed, g.Log, informer.NewSource(g.Client, o.name(), g.Client.Resource(resource),
		&object{}, o.set, o.gone).
		MadeOf(&unstructured.Unstructured{}, o.minimumOnly)).Foreign()
	return o
}

// name is what the kind is called in logs and metrics, where there are several of the same plural.
func (o *objects) name() string {
	return fmt.Sprintf("%s.%s.%s", o.kind.Object.Resource, o.version, o.kind.Object.Group)
}

// minimumOnly is a cache.TransformFunc.
func (o *objects) minimumOnly(obj any) (any, error) {
	full, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	kept := &object{ObjectMeta: metav1.ObjectMeta{
		Namespace: full.GetNamespace(), Name: full.GetName(), UID: full.GetUID(),
		ResourceVersion: full.GetResourceVersion(),
	}}
	kept.reference = &v1.ObjectReference{
		APIVersion: full.GetAPIVersion(), Kind: full.GetKind(), Namespace: kept.Namespace, Name: kept.Name, UID: kept.UID,
	}
	if kept.minimum, kept.problem = o.kind.Minimum(full.Object); kept.problem == "" {
		kept.tasks, kept.problem = o.kind.Tasks(full.Object, kept.minimum)
	}
	return kept, nil
}

func (o *objects) run(ctx context.Context) {
	// Its error is that of ctx.
	_ = o.watch.Run(ctx, o.news, o.news)
}

// news is called when all objects are known, or when there is no definition.
func (o *objects) news(context.Context) {
	o.first.Open()
	o.gangs.changed(o.kind.Name)
}

func (o *objects) set(obj *object, initial bool) {
	key := o.key(obj)
	begun := o.gangs.Pods.GangTasks(key)
	o.mu.Lock()
	former := o.known[key]
	o.known[key] = obj
	switch was := o.grown[key]; {
	case former == nil || former.UID != obj.UID || obj.minimum <= was:
		delete(o.grown, key)
	case was == 0 && 0 < former.minimum && former.minimum < obj.minimum && former.isMet(begun):
		o.grown[key] = former.minimum
	}
	o.mu.Unlock()
	if !initial && (former == nil || former.UID != obj.UID || former.minimum != obj.minimum ||
		former.problem != obj.problem || !maps.Equal(former.tasks, obj.tasks)) {
		o.gangs.OnChanged(key)
	}
}

// isMet reports whether a gang that has begun with so many members of each task is whole by the object.
func (o *object) isMet(begun map[string]int) bool {
	return (&Gang{Minimum: int(o.minimum), Tasks: o.tasks}).Lacks(begun) <= 0
}

func (o *objects) gone(obj *object) {
	key := o.key(obj)
	o.mu.Lock()
	delete(o.known, key)
	delete(o.grown, key)
	o.mu.Unlock()
	o.gangs.OnChanged(key)
}

func (o *objects) key(obj *object) kinds.Key {
	return kinds.Key{Kind: o.kind.Name, Namespace: obj.Namespace, Name: obj.Name}
}

// get returns the object of a gang, nil where there is none, and the minimum that it had before that grew.
func (o *objects) get(key kinds.Key) (known *object, former int64) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.known[key], o.grown[key]
}

// settle forgets which minimum an object had before.
func (o *objects) settle(key kinds.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.grown, key)
}

// keys returns the gangs that have an object, in no order.
func (o *objects) keys() []kinds.Key {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return slices.Collect(maps.Keys(o.known))
}
