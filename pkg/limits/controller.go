package limits

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Options configures a Controller. All fields are needed.
type Options struct {
	Ledger ledger.Observer
	Client kubernetes.Interface
	Policy *policy.Store
	// OnChanged is called after a limit, or the policy, has changed, without a lock.
	OnChanged func()
	// Recorder gets the Events.
	Recorder events.EventRecorder
	Log      logrus.FieldLogger
}

// lookAgain is how often percentages are computed anew. Events beyond the other two are left out.
const (
	lookAgain       = time.Second
	eventsPerSecond = 1
	eventBurst      = 20
)

// Controller keeps the limits of the ledger. Make one with New; it can run once.
type Controller struct {
	Options
	// Watch is of quotas.
	Watch *informer.Watch
	// Ready is open when all limits are in the ledger.
	Ready  *informer.Latch
	events *informer.Events

	mu      sync.Mutex                            // guards what follows
	quotas  map[string]map[string]v1.ResourceList // by namespace and name
	applied map[ledger.BudgetKind]map[string]*ledger.Limits
	listed  bool
}

// New makes a Controller and starts nothing.
func New(o Options) *Controller {
	c := &Controller{
		Options: o, events: informer.NewEvents(o.Recorder, eventsPerSecond, eventBurst), Ready: informer.NewLatch(),
		quotas: map[string]map[string]v1.ResourceList{}, applied: map[ledger.BudgetKind]map[string]*ledger.Limits{},
	}
	c.Watch = informer.NewWatch(nil, o.Log, informer.NewSource(o.Client, "resourcequotas",
		o.Client.CoreV1().ResourceQuotas(metav1.NamespaceAll), &v1.ResourceQuota{}, c.set, c.gone))
	return c
}

// Run keeps the limits until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.followNodes(ctx) })
	return c.Watch.Run(ctx, c.present, nil)
}

func (c *Controller) present(context.Context) {
	c.mu.Lock()
	c.listed = true
	c.mu.Unlock()
	c.Update()
	c.Ready.Open()
}

// followNodes computes percentages anew as what the nodes offer changes.
func (c *Controller) followNodes(ctx context.Context) {
	for informer.Pause(ctx, lookAgain) {
		if c.Policy.Current().HasPercentages() {
			c.Update()
		}
	}
}

func (c *Controller) set(quota *v1.ResourceQuota, _ bool) {
	list, whole := limitsIn(quota)
	if !whole {
		c.events.Warn(&v1.ObjectReference{
			APIVersion: "v1", Kind: "ResourceQuota", Namespace: quota.Namespace, Name: quota.Name, UID: quota.UID,
		}, "ScopesNotCounted", "Limit", "reservations do not count against this quota, because of its scopes: "+
			"limit those of the namespace by a quota without scopes, or by namespaces.maxReserved of the policy")
	}
	c.mu.Lock()
	of := c.quotas[quota.Namespace]
	if of == nil {
		of = map[string]v1.ResourceList{}
		c.quotas[quota.Namespace] = of
	}
	same := reflect.DeepEqual(of[quota.Name], list) // most changes are of the status
	of[quota.Name] = list
	c.mu.Unlock()
	if !same {
		c.Update()
	}
}

func (c *Controller) gone(quota *v1.ResourceQuota) {
	c.mu.Lock()
	delete(c.quotas[quota.Namespace], quota.Name)
	if len(c.quotas[quota.Namespace]) == 0 {
		delete(c.quotas, quota.Namespace)
	}
	c.mu.Unlock()
	c.Update()
}

// PolicyChanged applies another policy. It calls OnChanged in any case, because the gates go by the policy, too.
func (c *Controller) PolicyChanged() {
	c.apply()
	c.OnChanged()
}

// Update applies the quotas and the nodes as they are now.
func (c *Controller) Update() {
	if c.apply() {
		c.OnChanged()
	}
}

func (c *Controller) apply() (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.listed {
		return false // all at once
	}
	p := c.Policy.Current()
	changed = c.applyKind(ledger.OfNamespace, c.ofNamespaces(p))
	return c.applyKind(ledger.OfCaller, c.ofCallers(p)) || changed
}

// applyKind passes the limits of a kind to the ledger where they have changed. c.mu is held.
func (c *Controller) applyKind(kind ledger.BudgetKind, wanted map[string]*ledger.Limits) (changed bool) {
	same := func(a, b *ledger.Limits) bool { return reflect.DeepEqual(a, b) }
	if maps.EqualFunc(c.applied[kind], wanted, same) {
		return false
	}
	c.Ledger.SetLimits(kind, wanted)
	c.applied[kind] = wanted
	return true
}

// ofCallers returns the limits of the callers of all schedulers that have some. For a caller of several schedulers the
// smallest counts.
func (c *Controller) ofCallers(p *policy.Policy) map[string]*ledger.Limits {
	use := map[string]v1.ResourceList{}
	for i := range p.Schedulers {
		s := &p.Schedulers[i]
		if !s.Limited() {
			continue
		}
		amounts := c.amounts(s.Limits)
		for _, caller := range s.Callers {
			if use[caller] == nil {
				use[caller] = v1.ResourceList{}
			}
			addSmaller(use[caller], amounts)
		}
	}
	wanted := map[string]*ledger.Limits{}
	for caller, list := range use {
		wanted[caller] = &ledger.Limits{Use: resources.ForLimits(c.Ledger.Table(), list)}
	}
	return wanted
}

// ofNamespaces returns the limits of all namespaces that have some, and by the empty name those of the others. c.mu is
// held.
func (c *Controller) ofNamespaces(p *policy.Policy) map[string]*ledger.Limits {
	names := slices.Collect(maps.Keys(c.quotas))
	names = append(names, "")
	for name := range p.Namespaces {
		if name != policy.DefaultNamespace {
			names = append(names, name)
		}
	}
	wanted := map[string]*ledger.Limits{}
	for _, name := range names {
		rule, named := p.Namespaces[name]
		if !named || name == policy.DefaultNamespace {
			rule = p.Namespaces[policy.DefaultNamespace]
		}
		use := v1.ResourceList{}
		for _, list := range c.quotas[name] {
			addSmaller(use, list)
		}
		limits := &ledger.Limits{
			Use: resources.ForLimits(c.Ledger.Table(), use), Keep: resources.ForLimits(c.Ledger.Table(),
				c.amounts(rule.MaxReserved)),
			Slots: rule.MaxSlots,
		}
		if named || len(limits.Use)+len(limits.Keep) > 0 || limits.Slots != nil {
			wanted[name] = limits
		}
	}
	return wanted
}

// amounts returns amounts of the policy as the quantities that they are now.
func (c *Controller) amounts(of map[v1.ResourceName]policy.Amount) v1.ResourceList {
	list := v1.ResourceList{}
	for name, amount := range of {
		total := int64(0)
		if _, percent := amount.Percent(); percent {
			total = c.offered(name)
		}
		list[name] = amount.Quantity(name, total)
	}
	return list
}

// offered returns how much of a resource all nodes offer.
func (c *Controller) offered(name v1.ResourceName) (total int64) {
	column, ok := c.Ledger.Table().Lookup(name)
	if !ok {
		return 0
	}
	for _, u := range c.Ledger.AppendUsage(nil, c.Ledger.NodeNames(), []resources.Column{column}) {
		total, _ = resources.Add(total, u.Allocatable)
	}
	return total
}
