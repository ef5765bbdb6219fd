package reservations

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

// Options configures a Controller. All fields are needed.
type Options struct {
	Ledger *gates.GatedLedger
	// Client speaks JSON, as custom resources need.
	Client  versioned.Interface
	Nodes   *cluster.Nodes
	Pods    *cluster.Pods
	Matcher *placement.Matcher // knows which reservations pods may use
	// Kind is that of Reservations.
	Kind *informer.Kind
	// StateSynced is open when all pods and nodes are in the ledger.
	StateSynced *informer.Latch
	// MayDecide returns when new capacity may be given, or ctx ends. What was given
	// before is held without waiting for that.
	MayDecide func(ctx context.Context) error
	// Term is the term of this server, which a write of a status carries.
	Term *election.OwnTerm
	// Policy says how long a reservation lasts.
	Policy *policy.Store
	// OnRefused is called with a slot that there is no capacity for, and the reason in words. Where the ledger was asked
	// about a node, or a closest node is known, said is what the ledger says of that node. It must not use the
	// Controller.
	OnRefused func(asked *ledger.Slot, said *ledger.Rejection, why string)
	// FinishedTTL is how long objects are kept after their end.
	FinishedTTL time.Duration
	// Recorder gets the Events.
	Recorder events.EventRecorder
	Log      logrus.FieldLogger
}

// maxOrphans is how many ends of slots are remembered while their objects are not known. An object that the server made
// may be used up before the watch delivers it. The watch is never that far behind.
const maxOrphans = 1 << 15

// Thousands of reservations may end at once: more Events than these are left out.
const (
	eventsPerSecond = 20
	eventBurst      = 100
)

// Controller keeps Reservation objects and the ledger in step. Make one with New; it can run once.
type Controller struct {
	Options
	// Watch is of the objects.
	Watch *informer.Watch
	// Listed is open when the objects of the start are known. Pods and nodes are listed after that: a pod that an object
	// names, and that is not there then, is gone.
	Listed *informer.Latch
	// Ready is open when the objects of the start hold what is theirs: decisions can rely on the reservations in the
	// ledger.
	Ready  *informer.Latch
	now    func() time.Time // of the steady clock
	queue  *informer.Queue[types.NamespacedName]
	events *informer.Events
	kick   chan struct{} // something may fit now that did not
	freed  atomic.Uint64 // how often that was so

	mu       sync.Mutex // guards what follows
	records  map[types.NamespacedName]*record
	journal  *informer.Journal
	orphans  *lru.Cache // how slots ended whose objects are not known, by SlotRef
	starting bool       // the objects of the start are not restored yet
}

// New makes a Controller and starts nothing.
func New(o Options) *Controller {
	c := &Controller{
		Options: o, now: o.Ledger.Clock.Now,
		queue: informer.NewQueue[types.NamespacedName](informer.QueueOptions[types.NamespacedName]{
			Name: "writing a reservation", Workers: workers, RetryFirst: retryFirst, RetryMost: retryMost, Log: o.Log,
			NamespaceOf: func(key types.NamespacedName) string { return key.Namespace },
		}),
		events:  informer.NewEvents(o.Recorder, eventsPerSecond, eventBurst),
		kick:    make(chan struct{}, 1),
		records: map[types.NamespacedName]*record{},
		orphans: lru.New(maxOrphans), starting: true,
		Listed: informer.NewLatch(), Ready: informer.NewLatch(),
	}
	c.journal = informer.NewJournal(o.Ledger.Reader, c.note, c.lostTrack)
	c.Watch = informer.NewWatch(o.Kind, o.Log, informer.NewSource(o.Client, "reservations",
		o.Client.GlobalreserveV1alpha1().Reservations(metav1.NamespaceAll), &v1alpha1.Reservation{}, c.set, c.deleted))
	return c
}

// wall is the time to write in objects.
func (c *Controller) wall() time.Time { return c.Ledger.Clock.Wall() }

// Run keeps objects and ledger in step until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = c.journal.Run(ctx, &c.mu) })
	running.Go(func() { c.placeLoop(ctx) })
	running.Go(func() { _ = c.queue.Run(ctx, c.sync) })
	return c.Watch.Run(ctx, c.present, c.absent)
}

// Serving reports whether the API server knows Reservations and they are watched.
func (c *Controller) Serving() bool {
	return c.Kind.Installed() && c.Watch.Listed() && c.Ready.IsOpen()
}

// Known reports whether the watch has delivered a Reservation of a name.
func (c *Controller) Known(namespace, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.records[types.NamespacedName{Namespace: namespace, Name: name}]
	return ok
}

// present is called when the watch has delivered all objects there are.
func (c *Controller) present(ctx context.Context) {
	if !c.start(ctx) {
		return
	}
	c.Log.WithField("reservations", c.count()).Info("reservation objects are watched")
	c.Retry()
}

// absent is called when the API server knows no Reservations.
func (c *Controller) absent(ctx context.Context) { c.start(ctx) }

// start restores what objects had, once: when pods and nodes are in the ledger. It reports whether that is done.
func (c *Controller) start(ctx context.Context) bool {
	if c.Ready.IsOpen() {
		return true
	}
	c.Listed.Open()
	if c.StateSynced.Wait(ctx) != nil {
		return false
	}
	c.restoreAll()
	c.Ready.Open()
	return true
}

// Phases counts the objects by phase.
func (c *Controller) Phases() map[string]int {
	counts := map[string]int{}
	for _, phase := range []v1alpha1.ReservationPhase{
		v1alpha1.ReservationPending, v1alpha1.ReservationAvailable, v1alpha1.ReservationSucceeded,
		v1alpha1.ReservationExpired, v1alpha1.ReservationFailed, v1alpha1.ReservationPreempted,
	} {
		counts[string(phase)] = 0 // so that alerts see it rise
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		counts[string(cmp.Or(r.status.Phase, v1alpha1.ReservationPending))]++
	}
	return counts
}

func (c *Controller) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.records)
}

// set is called with every state of an object.
func (c *Controller) set(rsv *v1alpha1.Reservation, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe(rsv)
}

// deleted is called with objects that are gone.
func (c *Controller) deleted(rsv *v1alpha1.Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(keyOf(rsv), rsv.UID)
}

func keyOf(rsv *v1alpha1.Reservation) types.NamespacedName {
	return types.NamespacedName{Namespace: rsv.Namespace, Name: rsv.Name}
}

// observe takes in a state of an object. c.mu is held.
func (c *Controller) observe(rsv *v1alpha1.Reservation) {
	key := keyOf(rsv)
	r := c.records[key]
	switch {
	case r != nil && r.rsv.UID == rsv.UID && !newer(rsv, r.rsv):
		return
	case rsv.DeletionTimestamp != nil:
		// Only a finalizer keeps it; nobody wants its capacity any more.
		c.forget(key, rsv.UID)
		return
	case r == nil:
		c.addRecord(rsv)
	case r.rsv.UID != rsv.UID:
		c.forget(key, r.rsv.UID)
		c.addRecord(rsv)
	default:
		c.follow(r, rsv)
	}
}

// newer reports whether a may be a newer state than b.
func newer(a, b *v1alpha1.Reservation) bool {
	va, vb := cluster.ParseVersion(a.ResourceVersion), cluster.ParseVersion(b.ResourceVersion)
	return va == 0 || vb == 0 || va > vb
}

// follow takes in a change of a known object. c.mu is held.
func (c *Controller) follow(r *record, rsv *v1alpha1.Reservation) {
	changed := rsv.Generation != r.rsv.Generation
	r.rsv = rsv
	if rsv.Status.Phase.IsFinal() && !r.final() {
		c.release(r)
		c.journal.CatchUp()
		r.status = *rsv.Status.DeepCopy()
		for i := range r.slots {
			r.slots[i].held = false
		}
		c.explainEnd(r)
	}
	switch {
	case r.pending() && changed:
		r.tried = time.Time{}
		c.wake()
	case !r.final():
		c.applyTTL(r)
	}
	c.match(r)
	c.queue.Add(r.key())
}

// explainEnd completes the status of a reservation that somebody else ended.
func (c *Controller) explainEnd(r *record) {
	if r.condition(v1alpha1.ConditionFinished).Status != metav1.ConditionTrue {
		r.describe(cause{string(r.status.Phase), "the status was written by hand"}, c.wall())
	}
}

// match keeps a reservation in the matcher, for pods to use, until it is final. c.mu is held.
func (c *Controller) match(r *record) {
	if r.final() {
		c.Matcher.Remove(r.rsv.Namespace, r.rsv.Name)
		return
	}
	if err := c.Matcher.Set(r.rsv); err != nil {
		c.Log.WithError(err).WithField("reservation", r.key()).Warn("no pod can match this reservation")
	}
}

// forget drops an object that is gone, and releases what is still held for it, unless another object has its name by
// now. c.mu is held.
func (c *Controller) forget(key types.NamespacedName, uid types.UID) {
	r := c.records[key]
	if r == nil || r.rsv.UID != uid {
		return
	}
	// A slot of that name may be a newer reservation's already, whose object is
	// not here yet: only what has not ended since is released.
	c.journal.CatchUp()
	if c.release(r) > 0 {
		c.journal.CatchUp()
		c.Retry()
	}
	delete(c.records, key)
	c.Matcher.Remove(key.Namespace, key.Name)
}

// release gives back what a reservation holds and returns how many slots that were. c.mu is held.
func (c *Controller) release(r *record) int {
	var slots []string
	for i := range r.slots {
		if r.slots[i].holds() {
			slots = append(slots, r.rsv.Spec.Slots[i].Name)
		}
	}
	if len(slots) == 0 {
		return 0
	}
	return c.Ledger.ReleaseSlots(r.rsv.Namespace, r.rsv.Name, slots...)
}

// Retry makes a pass try all pending reservations soon. Others call it for changes without an event of the ledger:
// labels and taints of nodes, limits, resources that are left to DRA.
func (c *Controller) Retry() {
	c.freed.Add(1)
	c.wake()
}

// wake makes a pass try the pending reservations that are due soon.
func (c *Controller) wake() { informer.Poke(c.kick) }
