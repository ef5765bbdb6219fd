package deviceclaims

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"

	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Options configures a Controller. All fields are needed that do not say otherwise.
type Options struct {
	Ledger *ledger.Ledger
	// Client speaks JSON, as custom resources need.
	Client versioned.Interface
	// NodeExists tells whether there is a node of a name.
	NodeExists func(name string) bool
	// Served asks whether the API server knows ExtendedResources and ExtendedResourceClaims.
	Served func(ctx context.Context) (bool, error)
	// StateSynced returns when all pods and nodes are in the ledger, or ctx ends.
	StateSynced func(ctx context.Context) error
	// OnClaimChanged is told of claims that came, went or were made anew: pods that wait for one have
	// news, and those that are bound with one have to be observed again. It is called without a lock
	// and may be nil.
	OnClaimChanged func(namespace, name string)
	// Annotate writes annotations of a pod.
	Annotate func(ctx context.Context, pod ledger.PodRef, annotations map[string]string) error
	// Recorder gets the Events; nil means none.
	Recorder events.EventRecorder
	Log      logrus.FieldLogger
}

// workers is how many writes to the API server are under way at once: so many that the status of a thousand pods
// that are bound within seconds is there within seconds, too.
const workers = 16

// Controller keeps devices, claims and the ledger in step. Make one with New; it can be started once.
type Controller struct {
	Options
	source  *source
	queue   workqueue.TypedRateLimitingInterface[object]
	limiter eventLimiter
	told    *complaints

	mu       sync.RWMutex // guards what follows
	devices  inventory
	claims   map[types.NamespacedName]*claim
	uses     uses
	listed   bool   // the objects of the start are in: changes go to the ledger one by one
	seen     uint64 // the ledger's events are read up to here
	buffer   []ledger.Event
	unserved bool // the API server does not know the kinds

	adopted chan struct{} // closed when the objects of the start are in the ledger
	ready   chan struct{} // closed when pods and nodes are, too
	serving atomic.Bool

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// object is what is brought up to date: a claim, or a device, which has no namespace, or a pod, which has a
// UID here.
type object struct {
	namespace, name string
	pod             types.UID
}

// New makes a Controller and starts nothing.
func New(o Options) *Controller {
	c := &Controller{
		Options: o,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[object](retryFirst, retryMost),
			workqueue.TypedRateLimitingQueueConfig[object]{Name: "deviceclaims"}),
		limiter: newEventLimiter(), told: newComplaints(),
		devices: newInventory(), claims: map[types.NamespacedName]*claim{}, uses: newUses(),
		adopted: make(chan struct{}), ready: make(chan struct{}),
	}
	c.source = newSource(o.Client, c)
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

// WaitAdopted returns nil when the ledger has the devices, and the claims can be resolved. Only then may
// pods reach the ledger.
func (c *Controller) WaitAdopted(ctx context.Context) error { return waitFor(ctx, c.adopted) }

// WaitForSync returns nil once Synced is true, or the error of ctx.
func (c *Controller) WaitForSync(ctx context.Context) error { return waitFor(ctx, c.ready) }

// Synced reports whether decisions can rely on the devices in the ledger.
func (c *Controller) Synced() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// Serving reports whether the API server knows devices and claims, and they are watched.
func (c *Controller) Serving() bool { return c.serving.Load() && c.Synced() }

func waitFor(ctx context.Context, event <-chan struct{}) error {
	select {
	case <-event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// askAgain is how often a cluster without the definitions is asked for them, and askSoon how soon an API
// server that did not answer is asked again.
const (
	askAgain = 30 * time.Second
	askSoon  = time.Second
)

// run brings the Controller up: objects first, then what pods and nodes make of them. Where the API server
// does not know the kinds it is up without, and goes on asking.
func (c *Controller) run(ctx context.Context) {
	served := c.isServed(ctx)
	if ctx.Err() != nil {
		return
	}
	if !served {
		c.Log.Warn("the cluster has no definitions of extendedresources.globalreserve.io and extendedresourceclaims.globalreserve.io: running without devices; install manifests/crd to have them")
		c.setUnserved(true)
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
		c.setUnserved(false)
	}
	if c.source.start(ctx, &c.done) != nil {
		return
	}
	claims := c.adopt()
	late := c.Synced()
	if !late {
		close(c.adopted)
	}
	if c.StateSynced(ctx) != nil {
		return
	}
	if late {
		c.announce(claims...) // pods were observed without
	}
	c.takeStock()
	c.serving.Store(true)
	if !late {
		close(c.ready)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.Log.WithFields(logrus.Fields{"devices": len(c.devices.byName), "claims": len(c.claims)}).Info("devices and their claims are watched")
}

func (c *Controller) setUnserved(unserved bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unserved = unserved
}

// isServed asks until there is an answer; it returns false when ctx ends.
func (c *Controller) isServed(ctx context.Context) bool {
	for {
		served, err := c.Served(ctx)
		if err == nil {
			return served
		}
		if ctx.Err() == nil {
			c.Log.WithError(err).Warn("could not ask the API server for the definitions of devices and claims; will ask again")
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
