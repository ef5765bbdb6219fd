package deviceclaims

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/generated/informers/externalversions"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
)

// Reader knows what the claims ask for, and writes nothing: it is for a process that has its ledger from a
// server elsewhere. Make one with NewReader. Until the claims have been read, no pod can use one.
type Reader struct {
	client   versioned.Interface
	onChange func(namespace, name string)
	log      logrus.FieldLogger

	mu       sync.RWMutex // guards what follows
	claims   map[types.NamespacedName]*claim
	unserved bool // the API server does not know the kind
}

// NewReader returns a Reader that is not running. onChange is told of claims that came, went or were made
// anew; it is called without a lock, and must not block.
func NewReader(client versioned.Interface, onChange func(namespace, name string), log logrus.FieldLogger) *Reader {
	return &Reader{client: client, onChange: onChange, log: log, claims: map[types.NamespacedName]*claim{}, unserved: true}
}

// Devices is Controller.Devices.
func (r *Reader) Devices(pod *podinfo.Info) *ledger.DeviceRequest {
	if pod.Devices == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return resolve(pod, r.claims, r.unserved)
}

// discoverEvery is how often a Reader asks whether the cluster knows claims.
const discoverEvery = 10 * time.Second

// Run follows the claims, once the API server knows the kind, until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	for !r.served(ctx) {
		if !pause(ctx, discoverEvery) {
			return
		}
	}
	factory := externalversions.NewSharedInformerFactory(r.client, 0)
	informer := factory.Globalreserve().V1alpha1().ExtendedResourceClaims().Informer()
	if err := informer.SetTransform(dropManagedFields); err != nil {
		r.log.WithError(err).Error("Claims of devices cannot be read")
		return
	}
	if _, err := informer.AddEventHandler(r); err != nil {
		r.log.WithError(err).Error("Claims of devices cannot be read")
		return
	}
	r.mu.Lock()
	r.unserved = false
	r.mu.Unlock()
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

func (r *Reader) served(ctx context.Context) bool {
	list, err := r.client.Discovery().ServerResourcesForGroupVersionWithContext(ctx, v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			r.log.WithError(err).Warn("Cannot find out whether the cluster knows claims of devices; will try again")
		}
		return false
	}
	for i := range list.APIResources {
		if list.APIResources[i].Name == "extendedresourceclaims" {
			return true
		}
	}
	return false
}

// OnAdd implements cache.ResourceEventHandler.
func (r *Reader) OnAdd(obj any, _ bool) {
	if claim, ok := obj.(*v1alpha1.ExtendedResourceClaim); ok && r.observe(claim) {
		r.onChange(claim.Namespace, claim.Name)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (r *Reader) OnUpdate(_, obj any) { r.OnAdd(obj, false) }

// OnDelete implements cache.ResourceEventHandler.
func (r *Reader) OnDelete(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if claim, ok := obj.(*v1alpha1.ExtendedResourceClaim); ok {
		r.mu.Lock()
		delete(r.claims, keyOf(claim))
		r.mu.Unlock()
		r.onChange(claim.Namespace, claim.Name)
	}
}

// observe takes in a state of a claim and reports whether it is news.
func (r *Reader) observe(obj *v1alpha1.ExtendedResourceClaim) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := keyOf(obj)
	if known := r.claims[key]; known != nil && known.sameAs(obj) {
		return false
	}
	r.claims[key] = newClaim(obj)
	return true
}
