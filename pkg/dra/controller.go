package dra

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/dra/account"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// Options configures a Controller. All fields are needed.
type Options struct {
	Client kubernetes.Interface
	// Discovery reports whether the cluster has the kinds.
	Discovery discovery.DiscoveryInterfaceWithContext
	// OnOffered is called with what a ResourceSlice offers to pods that ask by count, each time that may have changed. It
	// must not call the Controller.
	OnOffered func(slice string, offered []cluster.DRAOffer)
	// Recorder gets the Events.
	Recorder events.EventRecorder
	Log      logrus.FieldLogger
}

// patience is how long a request waits for what a server before this one has granted to be settled. The API server
// waits for its webhook for 5 seconds.
const patience = 3 * time.Second

// Controller decides which claim is given which device. Make one with New; it can run once.
type Controller struct {
	Options
	account     *account.Account
	definitions *informer.Definitions
	watch       *informer.Watch
	classes     *informer.Watch
	offers      *offers
	events      *informer.Events
	news        chan struct{}
	queue       *informer.Queue[claimKey] // of the writes that are open

	mu       sync.Mutex      // guards what follows
	deciding bool            // all claims and slices are known, and no other server decides
	settled  *informer.Latch // open while what a server before this one has granted is known
	claims   map[types.UID]known
	open     map[types.UID]*write
	former   int // how many of these a server before this one may have granted
}

// New makes a Controller and starts nothing.
func New(o Options) *Controller {
	c := &Controller{
		Options: o, account: account.New(), offers: newOffers(o.OnOffered),
		definitions: informer.NewDefinitions(o.Discovery, resourcev1.SchemeGroupVersion, o.Log),
		events:      informer.NewEvents(o.Recorder, eventsPerSecond, eventBurst),
		news:        make(chan struct{}, 1),
		settled:     informer.NewLatch(), claims: map[types.UID]known{}, open: map[types.UID]*write{},
	}
	c.queue = informer.NewQueue[claimKey](informer.QueueOptions[claimKey]{
		Name: "settling a write of a ResourceClaim", Workers: settlers, RetryFirst: grace, RetryMost: mostGrace, Log: o.Log,
		NamespaceOf: func(key claimKey) string { return key.Namespace },
	})
	kinds := o.Client.ResourceV1()
	c.classes = informer.NewWatch(c.definitions.Kind("deviceclasses"), o.Log, informer.NewSource(
		o.Client, "deviceclasses", kinds.DeviceClasses(), &resourcev1.DeviceClass{},
		func(class *resourcev1.DeviceClass, _ bool) { c.offers.observeClass(class) }, c.offers.forgetClass,
	)).Foreign()
	c.watch = informer.NewWatch(c.definitions.Kind("resourceclaims", "resourceslices"), o.Log,
		informer.NewSource(o.Client, "resourceslices", kinds.ResourceSlices(), &resourcev1.ResourceSlice{}, c.observeSlice,
			c.forgetSlice).Keeping(leanSlice),
		informer.NewSource(o.Client, "resourceclaims", kinds.ResourceClaims(metav1.NamespaceAll), &resourcev1.ResourceClaim{},
			c.observe, c.forget).Keeping(leanClaim),
	).Foreign()
	return c
}

// Run follows claims and slices until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = c.definitions.Run(ctx) }) // its error is that of ctx
	running.Go(func() { c.tellDoubles(ctx) })
	running.Go(func() { _ = c.queue.Run(ctx, c.settle) })
	running.Go(func() { _ = c.classes.Run(ctx, func(context.Context) { c.offers.allListed() }, nil) })
	return c.watch.Run(ctx, c.present, nil)
}

// Watches returns the watches of all kinds.
func (c *Controller) Watches() []*informer.Watch { return []*informer.Watch{c.watch, c.classes} }

// UndecidedError says why nothing can be decided now.
type UndecidedError struct{ Why string }

// Error says what to do.
func (e *UndecidedError) Error() string { return e.Why }

// Grant decides whether a write may give a claim what is in its status. Before the write the claim has the version
// base, and size bytes in JSON. The error is an *UndecidedError; a refusal is no error. A dry call grants nothing.
func (c *Controller) Grant(ctx context.Context, claim *resourcev1.ResourceClaim, base int64, size int,
	dry bool,
) (*account.Refusal, error) {
	if err := c.wait(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settled.IsOpen() {
		return nil, errUnsettled
	}
	if size > account.MaxClaimSize {
		if refusal := c.account.RefuseLarge(claim, base); refusal != nil {
			return refusal, nil
		}
	}
	if dry {
		return c.account.Try(claim, base), nil
	}
	now := time.Now()
	refusal := c.account.Grant(claim, base, now)
	if refusal == nil {
		c.expect(claim, base, now)
	} else {
		c.hurry(claim.UID, refusal)
	}
	return refusal, nil
}

var (
	errUnread = &UndecidedError{"the server has not read the ResourceClaims and ResourceSlices of the cluster; ask " +
		"again in a moment, " +
		"and if this stays look for them in the server's log"}
	errStale = &UndecidedError{"the server may not know of the latest changes: nothing was heard of ResourceClaims " +
		"or ResourceSlices lately; ask again in a moment"}
	errUnsettled = &UndecidedError{"another server decided until a moment ago, and it is not known yet which devices " +
		"it has granted last; ask again in a moment"}
)

// wait returns nil once something can be granted.
func (c *Controller) wait(ctx context.Context) error {
	switch {
	case !c.watch.Listed():
		return errUnread
	case c.watch.Stale():
		return errStale
	}
	c.mu.Lock()
	settled := c.settled
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if settled.Wait(ctx) != nil {
		return errUnsettled
	}
	return nil
}

func (c *Controller) observeSlice(s *resourcev1.ResourceSlice, _ bool) {
	c.account.ObserveSlice(s)
	c.offers.observeSlice(s)
	c.look()
}

func (c *Controller) forgetSlice(s *resourcev1.ResourceSlice) {
	c.account.ForgetSlice(s.Name)
	c.offers.forgetSlice(s.Name)
	c.look()
}

func (c *Controller) observe(claim *resourcev1.ResourceClaim, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := known{claim, time.Now()}
	if former, ok := c.claims[claim.UID]; ok && former.Status.Allocation != nil {
		k.since = former.since
	}
	c.claims[claim.UID] = k
	c.account.ObserveClaim(claim)
	if w := c.open[claim.UID]; w != nil && account.Version(claim.ResourceVersion) > w.base {
		c.close(claim.UID)
	}
	if claim.Status.Allocation != nil {
		c.look()
	}
}

func (c *Controller) forget(claim *resourcev1.ResourceClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetUID(claim.UID)
}

// forgetUID drops a claim that is gone. c.mu is held.
func (c *Controller) forgetUID(uid types.UID) {
	c.account.ForgetClaim(uid)
	delete(c.claims, uid)
	c.close(uid)
	c.look()
}
