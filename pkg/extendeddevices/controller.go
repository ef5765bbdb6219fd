package extendeddevices

import (
	"context"
	"sync"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Options configures a Controller. All fields are needed.
type Options struct {
	Ledger ledger.Observer
	// Client speaks JSON, as custom resources need.
	Client versioned.Interface
	Nodes  *cluster.Nodes
	Pods   *cluster.Pods
	// Kind is that of ExtendedResources and ExtendedResourceClaims.
	Kind *informer.Kind
	// TemplateKind is that of ExtendedResourceClaimTemplates.
	TemplateKind *informer.Kind
	// StateSynced is open when all pods and nodes are in the ledger.
	StateSynced *informer.Latch
	// OnAdopted is called, without a lock, when devices and claims are known: only then Devices says which of them bound
	// pods have.
	OnAdopted func()
	// OnClaimChanged is called, without a lock, with a claim that came, went or was made anew: that is news for
	// pods that wait for it, and those that are bound with it have to be observed again.
	OnClaimChanged func(namespace, name string)
	// Term is the term of this server, which all writes carry.
	Term *election.OwnTerm
	// Annotate writes annotations of a pod.
	Annotate func(ctx context.Context, pod ledger.PodRef, annotations map[string]string) error
	// Recorder gets the Events.
	Recorder events.EventRecorder
	Log      logrus.FieldLogger
}

// workers is how many writes to the API server are under way at once: so many that the status of a thousand pods
// that are bound within seconds is there within seconds, too.
const workers = 16

// Events beyond these are left out: those on devices and claims, and those on pods that are refused.
const (
	eventsPerSecond   = 20
	eventBurst        = 100
	refusalsPerSecond = 5
	refusalBurst      = 50
)

// Controller keeps devices, claims and the ledger in step. Make one with New; it can run once.
type Controller struct {
	Options
	// Watch is of devices and claims.
	Watch *informer.Watch
	// Templates have a watch of their own: only pods that name one depend on them.
	Templates *informer.Watch
	// Adopted is open when the ledger has the devices, and the claims can be resolved.
	Adopted *informer.Latch
	// Ready is open when pods and nodes are in the ledger, too: decisions can rely on the devices there.
	Ready    *informer.Latch
	queue    *informer.Queue[object]
	events   *informer.Events
	refusals *informer.Events
	claims   claimSet

	mu      sync.RWMutex // guards what follows
	devices inventory
	journal *informer.Journal
	listed  bool // all objects there are are known: changes go to the ledger one by one
}

// object is what is brought up to date: a claim, or a device, which has no namespace, or a pod, which has a UID here.
type object struct {
	namespace, name string
	pod             types.UID
}

// New makes a Controller and starts nothing.
func New(o Options) *Controller {
	c := &Controller{
		Options: o,
		queue: informer.NewQueue[object](informer.QueueOptions[object]{
			Name: "writing of devices", Workers: workers, RetryFirst: retryFirst, RetryMost: retryMost, Log: o.Log,
			NamespaceOf: func(key object) string { return key.namespace },
		}),
		events:   informer.NewEvents(o.Recorder, eventsPerSecond, eventBurst),
		refusals: informer.NewEvents(o.Recorder, refusalsPerSecond, refusalBurst),
		devices:  newInventory(), claims: newClaimSet(),
		Adopted: informer.NewLatch(), Ready: informer.NewLatch(),
	}
	c.journal = informer.NewJournal(o.Ledger.Reader, c.note, c.bringAll)
	kinds := o.Client.GlobalreserveV1alpha1()
	c.Watch = informer.NewWatch(o.Kind, o.Log,
		informer.NewSource(o.Client, "extendedresources", kinds.ExtendedResources(), &v1alpha1.ExtendedResource{},
			c.observeDevice, c.forgetDevice),
		informer.NewSource(o.Client, "extendedresourceclaims", kinds.ExtendedResourceClaims(metav1.NamespaceAll),
			&v1alpha1.ExtendedResourceClaim{},
			c.observeClaim, c.forgetClaim))
	c.Templates = informer.NewWatch(o.TemplateKind, o.Log,
		informer.NewSource(o.Client, "extendedresourceclaimtemplates",
			kinds.ExtendedResourceClaimTemplates(metav1.NamespaceAll),
			&v1alpha1.ExtendedResourceClaimTemplate{}, c.observeTemplate, c.forgetTemplate))
	return c
}

// Run keeps objects and ledger in step until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = c.journal.Run(ctx, &c.mu) })
	running.Go(func() { _ = c.queue.Run(ctx, c.sync) })
	running.Go(func() { _ = c.Templates.Run(ctx, nil, nil) })
	return c.Watch.Run(ctx, c.present, c.absent)
}

// present is called when the watch has delivered all objects there are.
func (c *Controller) present(ctx context.Context) {
	c.adopt()
	c.OnAdopted()
	claims := c.claims.keys("")
	for _, key := range claims {
		c.OnClaimChanged(key.Namespace, key.Name) // pods may have been observed without
	}
	c.start(ctx)
	c.Log.WithField("claims", len(claims)).Info("devices and their claims are watched")
}

// absent is called when the API server does not know the kinds.
func (c *Controller) absent(ctx context.Context) {
	c.mu.Lock()
	c.listed = false
	c.mu.Unlock()
	c.start(ctx)
}

// start queues everything once pods and nodes are in the ledger.
func (c *Controller) start(ctx context.Context) {
	c.Adopted.Open()
	if c.StateSynced.Wait(ctx) != nil {
		return
	}
	c.mu.Lock()
	c.bringAll()
	c.mu.Unlock()
	c.Ready.Open()
	c.bringPods()
}
