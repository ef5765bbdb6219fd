package reservations

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// Node is what placing a slot needs to know of a node beyond its capacity.
type Node struct {
	Name   string
	UID    types.UID
	Labels map[string]string
	Taints []v1.Taint
}

// Nodes is where the nodes are looked up.
type Nodes interface {
	// Node returns a node; ok is false where there is none of that name.
	Node(name string) (node Node, ok bool)
	// Nodes returns all nodes, in no order.
	Nodes() []Node
}

// Pods is where the pods are looked up.
type Pods interface {
	Pod(namespace, name string) (*podinfo.Info, bool)
}

// Matcher is told which reservations pods may use.
type Matcher interface {
	// Set takes in a reservation. An error says why no pod can ever match it.
	Set(rsv *v1alpha1.Reservation) error
	Remove(namespace, name string)
}

// Options configures a Controller. All fields are needed but Recorder.
type Options struct {
	Ledger *ledger.Ledger
	// Client speaks JSON, as custom resources need.
	Client  versioned.Interface
	Nodes   Nodes
	Pods    Pods
	Matcher Matcher
	// Served asks whether the API server knows Reservations.
	Served func(ctx context.Context) (bool, error)
	// StateSynced returns when all pods and nodes are in the ledger, or ctx ends.
	StateSynced func(ctx context.Context) error
	// MayDecide returns when new room may be given, or ctx ends. What was given
	// before is held without waiting for that.
	MayDecide func(ctx context.Context) error
	// TTL returns how long a reservation lasts that asks for so long, 0 asking
	// for the default; an error says that it asks for too much.
	TTL func(scheduler string, asked time.Duration) (time.Duration, error)
	// FinishedTTL is how long objects are kept after their end.
	FinishedTTL time.Duration
	// Recorder gets the Events; nil means none.
	Recorder events.EventRecorder
	Log      logrus.FieldLogger
}

// workers is how many writes to the API server are under way at once.
const workers = 4

// Controller keeps Reservation objects and the ledger in step. Make one with
// New; it can be started once.
type Controller struct {
	Options
	now func() time.Time
	// source lists and watches the objects.
	source  *source
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
	kick    chan struct{} // something may fit now that did not
	limiter eventLimiter

	mu      sync.Mutex // guards what follows
	records map[types.NamespacedName]*record
	waiting map[types.NamespacedName]*record // those that are pending
	seen    uint64                           // the ledger's events are read up to here
	buffer  []ledger.Event
	orphans orphans

	adopted chan struct{} // closed when the objects of the start are in the ledger
	ready   chan struct{} // closed when pods and nodes are matched with them, too
	serving atomic.Bool

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// New makes a Controller and starts nothing.
func New(o Options) *Controller {
	c := &Controller{
		Options: o, now: time.Now,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryFirst, retryMost),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "reservations"}),
		kick: make(chan struct{}, 1), limiter: newEventLimiter(),
		records: map[types.NamespacedName]*record{}, waiting: map[types.NamespacedName]*record{},
		orphans: newOrphans(),
		adopted: make(chan struct{}), ready: make(chan struct{}),
	}
	c.source = newSource(o.Client, c, o.Log)
	return c
}

// Start begins to watch, until Stop.
func (c *Controller) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.seen = c.Ledger.Revision()
	wake, unsubscribe := c.Ledger.Subscribe()
	c.done.Go(func() {
		defer unsubscribe()
		c.followLedger(ctx, wake)
	})
	c.done.Go(func() { c.run(ctx) })
	c.done.Go(func() { c.placeLoop(ctx) })
	for range workers {
		c.done.Go(func() { c.work(ctx) })
	}
}

// Stop ends everything and returns when it has ended.
func (c *Controller) Stop() {
	if c.cancel == nil {
		return
	}
	c.cancel()
	c.queue.ShutDown()
	c.done.Wait()
}

// WaitAdopted returns nil when everything that objects prove to be held is in
// the ledger. Only then may pods reach it.
func (c *Controller) WaitAdopted(ctx context.Context) error { return waitFor(ctx, c.adopted) }

// WaitForSync returns nil once Synced is true, or the error of ctx.
func (c *Controller) WaitForSync(ctx context.Context) error { return waitFor(ctx, c.ready) }

// Synced reports whether decisions can rely on the reservations in the ledger.
func (c *Controller) Synced() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// Serving reports whether the API server knows Reservations and they are watched.
func (c *Controller) Serving() bool { return c.serving.Load() && c.Synced() }

// Known reports whether the watch has brought a Reservation of a name.
func (c *Controller) Known(namespace, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.records[types.NamespacedName{Namespace: namespace, Name: name}]
	return ok
}

func waitFor(ctx context.Context, event <-chan struct{}) error {
	select {
	case <-event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// askAgain is how often a cluster without the definition is asked for it, and
// askSoon how soon an API server that did not answer is asked again.
const (
	askAgain = 30 * time.Second
	askSoon  = time.Second
)

// run brings the Controller up: objects first, then what pods and nodes make of
// them. Where the API server knows no Reservations it is up without, and goes on
// asking.
func (c *Controller) run(ctx context.Context) {
	served := c.isServed(ctx)
	if ctx.Err() != nil {
		return
	}
	if !served {
		c.Log.Warn("the cluster has no definition of reservations.globalreserve.io: running without reservation objects; install manifests/crd to have them")
		close(c.adopted)
		if c.StateSynced(ctx) != nil {
			return
		}
		close(c.ready)
		for !served {
			if !pause(ctx, askAgain) {
				return
			}
			served = c.isServed(ctx)
		}
	}
	if c.source.start(ctx, &c.done) != nil {
		return
	}
	late := c.Synced()
	if !late {
		close(c.adopted)
	}
	if c.StateSynced(ctx) != nil {
		return
	}
	c.settleStart()
	c.serving.Store(true)
	if !late {
		close(c.ready)
	}
	c.Log.WithField("reservations", c.count()).Info("reservation objects are watched")
	c.retry()
}

// isServed asks until there is an answer; it returns false when ctx ends.
func (c *Controller) isServed(ctx context.Context) bool {
	for {
		served, err := c.Served(ctx)
		if err == nil {
			return served
		}
		if ctx.Err() == nil {
			c.Log.WithError(err).Warn("could not ask the API server for the definition of reservations; will ask again")
		}
		if !pause(ctx, askSoon) {
			return false
		}
	}
}

// pause waits and reports whether ctx lasts.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (c *Controller) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.records)
}

// OnAdd implements cache.ResourceEventHandler.
func (c *Controller) OnAdd(obj any, initial bool) {
	if rsv, ok := obj.(*v1alpha1.Reservation); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.observe(rsv, initial)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (c *Controller) OnUpdate(_, obj any) { c.OnAdd(obj, false) }

// OnDelete implements cache.ResourceEventHandler.
func (c *Controller) OnDelete(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if rsv, ok := obj.(*v1alpha1.Reservation); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.forget(keyOf(rsv), rsv.UID)
	}
}

func keyOf(rsv *v1alpha1.Reservation) types.NamespacedName {
	return types.NamespacedName{Namespace: rsv.Namespace, Name: rsv.Name}
}

// observe takes in a state of an object. c.mu is held.
func (c *Controller) observe(rsv *v1alpha1.Reservation, initial bool) {
	key := keyOf(rsv)
	r := c.records[key]
	switch {
	case r != nil && r.rsv.UID == rsv.UID && !newer(rsv, r.rsv):
		return
	case rsv.DeletionTimestamp != nil:
		// Only a finalizer keeps it; nobody wants its room any more.
		c.forget(key, rsv.UID)
		return
	case r == nil:
		c.meet(rsv, initial)
	case r.rsv.UID != rsv.UID:
		c.forget(key, r.rsv.UID)
		c.meet(rsv, initial)
	default:
		c.follow(r, rsv)
	}
}

// newer reports whether a may be a newer state than b.
func newer(a, b *v1alpha1.Reservation) bool {
	va, errA := strconv.ParseUint(a.ResourceVersion, 10, 64)
	vb, errB := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errors.Join(errA, errB) != nil || va > vb
}

// follow takes in a change of a known object. c.mu is held.
func (c *Controller) follow(r *record, rsv *v1alpha1.Reservation) {
	r.rsv = rsv
	if rsv.Status.Phase.IsFinal() && !r.final() {
		c.release(r)
		c.catchUp()
		r.status = *rsv.Status.DeepCopy()
		for i := range r.slots {
			r.slots[i].held = false
		}
		c.explainEnd(r)
	}
	switch {
	case r.final():
		c.settled(r)
	case r.pending():
		c.retry()
	default:
		c.applyTTL(r)
	}
	c.match(r)
	c.queue.Add(r.key())
}

// explainEnd completes the status of a reservation that somebody else ended.
func (c *Controller) explainEnd(r *record) {
	if r.condition(v1alpha1.ConditionFinished).Status != metav1.ConditionTrue {
		r.describe(cause{string(r.status.Phase), "the status was written by hand"}, c.now())
	}
}

// match tells the matcher of a reservation that pods may use. c.mu is held.
func (c *Controller) match(r *record) {
	if r.final() {
		c.Matcher.Remove(r.rsv.Namespace, r.rsv.Name)
		return
	}
	if err := c.Matcher.Set(r.rsv); err != nil {
		c.Log.WithError(err).WithField("reservation", r.key()).Warn("no pod can match this reservation")
	}
}

// settled does what is due once when a reservation is no longer pending or no
// longer holds room. c.mu is held.
func (c *Controller) settled(r *record) {
	delete(c.waiting, r.key())
	if r.final() {
		c.Matcher.Remove(r.rsv.Namespace, r.rsv.Name)
	}
}

// forget drops an object that is gone, unless its name is another's by now, and
// what is still held for it. c.mu is held.
func (c *Controller) forget(key types.NamespacedName, uid types.UID) {
	r := c.records[key]
	if r == nil || r.rsv.UID != uid {
		return
	}
	// A hold of that name may be a newer reservation's already, whose object is
	// not here yet: only what has not ended since is released.
	c.catchUp()
	if c.release(r) > 0 {
		c.catchUp()
		c.retry()
	}
	delete(c.records, key)
	delete(c.waiting, key)
	c.Matcher.Remove(key.Namespace, key.Name)
}

// release gives back what a reservation holds and returns how many holds that
// were. c.mu is held.
func (c *Controller) release(r *record) int {
	var slots []string
	for i := range r.slots {
		if r.slots[i].held && r.slots[i].end.how == "" {
			slots = append(slots, r.rsv.Spec.Slots[i].Name)
		}
	}
	if len(slots) == 0 {
		return 0
	}
	return c.Ledger.ReleaseHolds(r.rsv.Namespace, r.rsv.Name, slots...)
}

// NodesChanged says that labels or taints of nodes changed, which the ledger has
// no event for.
func (c *Controller) NodesChanged() { c.retry() }

// retry has the pending reservations tried soon.
func (c *Controller) retry() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}
