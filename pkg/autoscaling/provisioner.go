package autoscaling

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

// Provisioner requests nodes for reservations that fit none. Make it with NewProvisioner; it can run once.
type Provisioner struct {
	*writes

	definitions *informer.Definitions
	kind        *informer.Kind
	// Watch is of requests.
	Watch *informer.Watch

	mu    sync.Mutex                           // guards what follows
	known map[owned]*unstructured.Unstructured // requests that were made here

	// since is since when a reservation fits no node, and next when what failed for one is tried again. served is when
	// nodes were requested last for one of a namespace. Run alone uses them.
	since, next map[types.UID]time.Time
	served      map[string]time.Time
}

// NewProvisioner makes a Provisioner and starts nothing.
func NewProvisioner(o Options) *Provisioner {
	p := &Provisioner{
		writes:      newWrites("ProvisioningRequest", o),
		definitions: informer.NewDefinitions(o.Discovery, groupVersion, o.Log),
		known:       map[owned]*unstructured.Unstructured{},
		since:       map[types.UID]time.Time{}, next: map[types.UID]time.Time{}, served: map[string]time.Time{},
	}
	p.kind = p.definitions.Kind(requests.Resource)
	p.Watch = informer.NewWatch(p.kind, o.Log,
		informer.NewSource(o.Objects, requests.Resource, ours{o.Objects.Resource(requests)}, &unstructured.Unstructured{},
			p.observe, p.forget)).Foreign()
	return p
}

// owned names the reservation that a request is for. The namespace is the request's own: users who may write in another
// namespace have no say about this reservation.
type owned struct {
	namespace string
	uid       types.UID
}

// ours are the requests that were made here.
type ours struct {
	dynamic.NamespaceableResourceInterface
}

// List implements informer.Client.
func (c ours) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	o.LabelSelector = managedByLabel + "=" + managedBy
	return c.NamespaceableResourceInterface.List(ctx, o)
}

// Watch implements informer.Client.
func (c ours) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector = managedByLabel + "=" + managedBy
	return c.NamespaceableResourceInterface.Watch(ctx, o)
}

// Run requests nodes until ctx ends. Nothing is read before the policy wants that.
func (p *Provisioner) Run(ctx context.Context) error {
	for p.rules().ClassName == "" {
		if !informer.Pause(ctx, lookEvery) {
			return nil
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = p.definitions.Run(ctx) }) // its error is that of ctx
	running.Go(func() { _ = p.Watch.Run(ctx, nil, nil) })
	for informer.Pause(ctx, lookEvery) {
		if p.Ledger.Ready() == nil && p.Watch.Listed() && !p.Watch.Stale() {
			p.step(ctx, p.Ledger.Clock.Now())
		}
	}
	return nil
}

func (p *Provisioner) rules() *policy.ProvisioningRequests {
	return &p.Policy.Current().Autoscaling.ProvisioningRequests
}

func (p *Provisioner) observe(request *unstructured.Unstructured, _ bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if owner := ownerOf(request); owner.UID != "" {
		p.known[owned{request.GetNamespace(), owner.UID}] = request
	}
}

func (p *Provisioner) forget(request *unstructured.Unstructured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := owned{request.GetNamespace(), ownerOf(request).UID}
	if former := p.known[key]; former != nil && former.GetUID() == request.GetUID() {
		delete(p.known, key)
	}
}

// Trouble returns why requests cannot be read, or the last one could not be written; nil where all is well.
func (p *Provisioner) Trouble() error {
	return cmp.Or(informer.NewsOf(p.Watch).Troubles[requests.Resource], p.writes.Trouble())
}

// step requests nodes for the reservations that have fitted none for long enough, reports what became of former
// requests, and deletes those that nobody waits for.
func (p *Provisioner) step(ctx context.Context, now time.Time) {
	p.mu.Lock()
	known := maps.Clone(p.known)
	p.mu.Unlock()
	waiting, due := map[types.UID]bool{}, []*v1alpha1.Reservation{}
	for _, pending := range p.Reservations.Pending() {
		uid := pending.Reservation.UID
		waiting[uid] = true
		if request := known[owned{pending.Reservation.Namespace, uid}]; request != nil {
			reason, message := answerOf(request)
			p.Reservations.TellProvisioning(pending.Reservation, metav1.ConditionTrue, reason, message)
			continue
		}
		if !pending.NoNodeFits {
			delete(p.since, uid)
			continue
		}
		if since, ok := p.since[uid]; !ok {
			p.since[uid] = now
		} else if now.Sub(since) >= p.rules().After.Duration && !now.Before(p.next[uid]) && !pending.Provisioning {
			due = append(due, pending.Reservation)
		}
	}
	p.requestAll(ctx, due, now)
	for _, times := range []map[types.UID]time.Time{p.since, p.next} {
		maps.DeleteFunc(times, func(uid types.UID, _ time.Time) bool { return !waiting[uid] })
	}
	maps.DeleteFunc(p.served, func(_ string, at time.Time) bool { return now.Sub(at) >= servedFor })
	for key, request := range known {
		if !waiting[key.uid] && p.Reservations.Settled(request.GetNamespace(), ownerOf(request)) && p.limiter.Allow() {
			p.ended(p.delete(ctx, request))
		}
	}
}

// requestAll requests nodes for the reservations, as long as there may be writes.
func (p *Provisioner) requestAll(ctx context.Context, due []*v1alpha1.Reservation, now time.Time) {
	for _, rsv := range p.inTurn(due) {
		if p.rules().ClassName == "" || !p.limiter.Allow() || p.Ledger.Ready() != nil {
			return
		}
		p.served[rsv.Namespace] = now
		p.request(ctx, rsv, now)
	}
}

// inTurn orders reservations: one of each namespace in turn, first that which was served longest ago, and of it the one
// that was tried longest ago.
func (p *Provisioner) inTurn(due []*v1alpha1.Reservation) []*v1alpha1.Reservation {
	tried := func(rsv *v1alpha1.Reservation) time.Time {
		if next, ok := p.next[rsv.UID]; ok {
			return next.Add(-againAfter)
		}
		return p.since[rsv.UID]
	}
	slices.SortStableFunc(due, func(a, b *v1alpha1.Reservation) int {
		return cmp.Or(p.served[a.Namespace].Compare(p.served[b.Namespace]), tried(a).Compare(tried(b)))
	})
	return informer.InTurn(due, func(rsv *v1alpha1.Reservation) string { return rsv.Namespace })
}

// request requests nodes for a reservation, once.
func (p *Provisioner) request(ctx context.Context, rsv *v1alpha1.Reservation, now time.Time) {
	rules := p.rules()
	sets, why := podSets(rsv)
	if why != "" {
		p.next[rsv.UID] = now.Add(againAfter)
		p.Reservations.TellProvisioning(rsv, metav1.ConditionFalse, reasonNotRequestable, why)
		return
	}
	err := p.make(ctx, rsv, sets, rules)
	if ctx.Err() != nil {
		return
	}
	p.ended(err)
	p.next[rsv.UID] = now.Add(againAfter) // the watch has delivered it by then
	if err != nil {
		p.Reservations.TellProvisioning(rsv, metav1.ConditionFalse, reasonRequestFailed, err.Error())
		return
	}
	p.Reservations.TellProvisioning(rsv, metav1.ConditionTrue, reasonRequested,
		fmt.Sprintf("ProvisioningRequest %s of class %s was made", requestName(rsv), rules.ClassName))
}

// make makes the templates and then the request. What is there already was made by this server or one before it, or
// asks for the same.
func (p *Provisioner) make(ctx context.Context, rsv *v1alpha1.Reservation, sets []podSet,
	rules *policy.ProvisioningRequests,
) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	for _, template := range podTemplates(rsv, sets) {
		if err := p.makeTemplate(ctx, template); err != nil {
			return err
		}
	}
	options := metav1.CreateOptions{FieldManager: fieldManager}
	request, err := newRequest(rsv, sets, rules)
	if err != nil {
		return fmt.Errorf("making a ProvisioningRequest: %w", err)
	}
	_, err = p.Objects.Resource(requests).Namespace(rsv.Namespace).Create(ctx, request, options)
	if apierrors.IsNotFound(err) {
		p.kind.Doubt()
	}
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("making ProvisioningRequest %s: %w", request.GetName(), err)
}

// makeTemplate makes a template. A user who may write templates in the namespace may have made one of the name before:
// it has to ask for what the API server makes of ours.
func (p *Provisioner) makeTemplate(ctx context.Context, template *v1.PodTemplate) error {
	client := p.Client.CoreV1().PodTemplates(template.Namespace)
	if err := p.limiter.Wait(ctx); err != nil {
		return err
	}
	_, err := client.Create(ctx, template, metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case err == nil:
		return nil
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("making PodTemplate %s: %w", template.Name, err)
	}
	former, err := client.Get(ctx, template.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading PodTemplate %s: %w", template.Name, err)
	}
	ours := template.DeepCopy()
	ours.Name, ours.GenerateName = "", template.Name+"-"
	ours, err = client.Create(ctx, ours, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("filling in PodTemplate %s: %w", template.Name, err)
	}
	if !apiequality.Semantic.DeepEqual(former.Template, ours.Template) {
		return fmt.Errorf("PodTemplate %s is there and asks for something else: delete it", template.Name)
	}
	return nil
}

// delete removes a request that nobody waits for.
func (p *Provisioner) delete(ctx context.Context, request *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	uid := request.GetUID()
	err := p.Objects.Resource(requests).Namespace(request.GetNamespace()).
		Delete(ctx, request.GetName(), metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid},
		})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting ProvisioningRequest %s/%s: %w", request.GetNamespace(), request.GetName(), err)
	}
	return nil
}
