package gangs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// Options configures Gangs. All fields are needed.
type Options struct {
	// Pods know which pod is a member of which gang.
	Pods *cluster.Pods
	// Kinds are the kinds of gangs in use; those that Pods were read with.
	Kinds *kinds.Table
	// Client reads objects of any kind.
	Client dynamic.Interface
	// Discovery reports which kinds the API server has.
	Discovery discovery.DiscoveryInterfaceWithContext
	// OnChanged is called with a gang that may need another number of members now, or have another problem. It is
	// called without a lock, and must not block.
	OnChanged func(kinds.Key)
	Log       logrus.FieldLogger
}

// Gang is what is known of one gang.
type Gang struct {
	Key kinds.Key
	// Minimum is how many members it needs, at least 2; 0 where there is a Problem.
	Minimum int
	// Former is the minimum that its object had before that grew, while so many members had begun, until Settle is called;
	// 0 where there is none.
	Former int
	// Tasks are how many of these have to be of each task; nil where that does not matter. Nobody changes it.
	Tasks map[string]int
	// Problem says what is wrong with the gang, and what to do; "" where its minimum is known.
	Problem string
	// Unread says that the problem is that its object may be there, and was not read, or not lately.
	Unread bool
	// Missing says that the problem is that its object does not exist: the gang was deleted, or not made yet.
	Missing bool
	// Object names the gang's object for Events about it, nil where there is none. Nobody changes it.
	Object *v1.ObjectReference
	// Unsettled says that its pods name different minimums, and none of them has begun: that of the newest counts.
	Unsettled bool
}

// Lacks returns how many more members a gang with tasks needs that has so many of each. Members of a task beyond its
// own minimum count as far as the gang needs more than its tasks do.
func (g *Gang) Lacks(has map[string]int) int {
	count, others, free := 0, 0, g.Minimum
	for task, minimum := range g.Tasks {
		count += min(has[task], minimum)
		free -= minimum
	}
	for task, there := range has {
		others += max(0, there-g.Tasks[task])
	}
	return g.Minimum - count - min(others, free)
}

// Gangs knows the gangs of the cluster. Make it with New; it can run once.
type Gangs struct {
	Options
	definitions map[schema.GroupVersion]*informer.Definitions
	kinds       map[string]*kinds.Compiled
	objects     map[string][]*objects // of kinds that have any, by version, the best first
}

// New makes Gangs and starts nothing.
func New(o Options) *Gangs {
	g := &Gangs{
		Options: o, definitions: map[schema.GroupVersion]*informer.Definitions{},
		kinds: map[string]*kinds.Compiled{}, objects: map[string][]*objects{},
	}
	for _, kind := range o.Kinds.Kinds() {
		g.kinds[kind.Name] = kind
		if kind.Object == nil {
			continue
		}
		for _, version := range kind.Object.Versions {
			gv := schema.GroupVersion{Group: kind.Object.Group, Version: version}
			if g.definitions[gv] == nil {
				g.definitions[gv] = informer.NewDefinitions(o.Discovery, gv, o.Log)
			}
			g.objects[kind.Name] = append(g.objects[kind.Name], g.newObjects(kind, version,
				g.definitions[gv].Kind(kind.Object.Resource)))
		}
	}
	return g
}

// patience is how long the first lists may take. A definition of others may be broken, or the rights to read its
// objects be missing: that must not keep everybody else waiting.
const patience = 5 * time.Second

// Run follows the objects until ctx ends.
func (g *Gangs) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, d := range g.definitions {
		running.Go(func() { _ = d.Run(ctx) }) // its error is that of ctx
	}
	for o := range g.all {
		running.Go(func() { o.run(ctx) })
	}
	running.Go(func() { g.giveUp(ctx) })
	running.Wait()
	return nil
}

// giveUp ends the wait for what cannot be read, after patience.
func (g *Gangs) giveUp(ctx context.Context) {
	if !informer.Pause(ctx, patience) {
		return
	}
	for o := range g.all {
		if !o.first.IsOpen() {
			g.Log.Warnf("%s could not be read for %v: pods of gangs of kind %s are refused until they are", o.name(), patience,
				o.kind.Name)
			o.first.Open()
		}
	}
}

// all yields the objects of all kinds and versions.
func (g *Gangs) all(yield func(*objects) bool) {
	for _, versions := range g.objects {
		for _, o := range versions {
			if !yield(o) {
				return
			}
		}
	}
}

// WaitForSync returns nil once Synced is true, which is soon, or the error of ctx.
func (g *Gangs) WaitForSync(ctx context.Context) error {
	for o := range g.all {
		if err := o.first.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Synced reports whether the objects there were at the start are known, or cannot be read.
func (g *Gangs) Synced() bool {
	for o := range g.all {
		if !o.first.IsOpen() {
			return false
		}
	}
	return true
}

// Watches returns the watches of all kinds and versions.
func (g *Gangs) Watches() (list []*informer.Watch) {
	for o := range g.all {
		list = append(list, o.watch)
	}
	return list
}

// changed calls OnChanged with all gangs of a kind that have members.
func (g *Gangs) changed(kind string) {
	for key := range g.Pods.GangKeys() {
		if key.Kind == kind {
			g.OnChanged(key)
		}
	}
}

// Redirect returns what the policy says of the kind of gang that a pod names, "" where it says nothing.
func (g *Gangs) Redirect(pod *cluster.Pod) kinds.Redirect {
	if pod.Gang == nil || g.kinds[pod.Gang.Kind] == nil {
		return ""
	}
	return g.kinds[pod.Gang.Kind].Redirect
}

// Of returns the gang that a pod is a member of; ok is false where the pod is useful alone.
func (g *Gangs) Of(pod *cluster.Pod) (gang Gang, ok bool) {
	if pod.Gang == nil {
		return Gang{}, false
	}
	word, _ := g.Pods.GangSays(pod.Gang.Key(pod.Ref.Namespace), pod)
	return g.gang(pod.Gang.Key(pod.Ref.Namespace), &word)
}

// Get returns the gang of a key, going by its object and its members; ok is false where there is none.
func (g *Gangs) Get(key kinds.Key) (gang Gang, ok bool) {
	word, known := g.Pods.GangSays(key, nil)
	if !known {
		return g.gang(key, nil)
	}
	return g.gang(key, &word)
}

// gang puts together what members say, nil where there are none, and what the object does.
func (g *Gangs) gang(key kinds.Key, says *cluster.Word) (gang Gang, ok bool) {
	kind := g.kinds[key.Kind]
	if kind == nil {
		return Gang{}, false
	}
	gang = Gang{Key: key, Unsettled: says != nil && !says.Settled}
	var minimum int64
	byPods := says != nil && says.Minimum != 0
	object, former, state := g.object(key)
	if object != nil {
		gang.Object = object.reference
	}
	switch {
	case !byPods && state == notInstalled:
		return Gang{}, false
	case says != nil && says.Err != "":
		gang.Problem = says.Err
	case says != nil && !says.Agreed:
		gang.Problem = fmt.Sprintf("members of %s name different minimums; give all of them the same", key)
	case byPods:
		minimum = says.Minimum
	case object != nil:
		minimum, gang.Tasks, gang.Problem = object.minimum, object.tasks, object.problem
		gang.Former = int(former)
		if gang.Problem != "" {
			gang.Problem = fmt.Sprintf("%s %s/%s: %s", kind.Object.GroupResource(), key.Namespace, key.Name, gang.Problem)
		}
	case state == notListed:
		gang.Unread = true
		gang.Problem = fmt.Sprintf("the server cannot tell how many members the gang needs, because it has not read the "+
			"%s of the cluster lately; "+
			"ask again in a moment, and if this stays look for %[1]s in the server's log", kind.Object.GroupResource())
	default:
		gang.Missing = true
		gang.Problem = fmt.Sprintf("%s %s/%s, which pods of the gang name, does not exist; create it, or correct the name "+
			"on the pods",
			kind.Object.GroupResource(), key.Namespace, key.Name)
	}
	if gang.Problem == "" && minimum <= 1 {
		return Gang{}, false
	}
	gang.Minimum = int(minimum)
	return gang, true
}

// state is what is known of the objects of a kind.
type state int

const (
	notInstalled state = iota // or the kind has no objects
	notListed                 // or their watch is silent for too long
	listed
)

// object returns the object of a gang, nil where none is known, and the minimum that it had before that grew.
func (g *Gangs) object(key kinds.Key) (known *object, former int64, is state) {
	now := notInstalled
	for _, o := range g.objects[key.Kind] {
		if o.installed.Absent() {
			continue
		}
		current := o.watch.Listed() && !o.watch.Stale()
		if known, former = o.get(key); known != nil && current {
			return known, former, listed
		}
		switch {
		case !current:
			now = notListed
		case now == notInstalled:
			now = listed
		}
	}
	return nil, 0, now
}

// Grown returns the gangs of which Former is known.
func (g *Gangs) Grown() (keys []kinds.Key) {
	for o := range g.all {
		o.mu.RLock()
		keys = slices.AppendSeq(keys, maps.Keys(o.grown))
		o.mu.RUnlock()
	}
	return keys
}

// Settle forgets which minimum a gang needed before: it does not matter any more.
func (g *Gangs) Settle(key kinds.Key) {
	for _, o := range g.objects[key.Kind] {
		o.settle(key)
	}
}

// All yields all gangs that have an object or members, in no order. No lock is held while it yields.
func (g *Gangs) All(yield func(Gang) bool) {
	seen := map[kinds.Key]bool{}
	more := func(key kinds.Key) bool {
		if seen[key] {
			return true
		}
		seen[key] = true
		gang, ok := g.Get(key)
		return !ok || yield(gang)
	}
	for o := range g.all {
		for _, key := range o.keys() {
			if !more(key) {
				return
			}
		}
	}
	for key := range g.Pods.GangKeys() {
		if !more(key) {
			return
		}
	}
}
