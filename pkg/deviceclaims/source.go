package deviceclaims

import (
	"context"
	"fmt"
	"sync"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	informers "github.com/globalreserve/globalreserve/pkg/generated/informers/externalversions/globalreserve/v1alpha1"
)

// source is the watches on devices and claims.
type source struct {
	devices, claims             cache.SharedIndexInformer
	deviceHandler, claimHandler cache.ResourceEventHandler
	log                         logrus.FieldLogger
}

func newSource(client versioned.Interface, c *Controller) *source {
	return &source{
		devices:       informers.NewFilteredExtendedResourceInformer(client, 0, cache.Indexers{}, consistent),
		claims:        informers.NewFilteredExtendedResourceClaimInformer(client, metav1.NamespaceAll, 0, cache.Indexers{}, consistent),
		deviceHandler: deviceHandler{c}, claimHandler: claimHandler{c}, log: c.Log,
	}
}

// consistent asks for the newest state where a reflector would take what some API server has cached: a
// claim whose pod is bound must be in the first list.
func consistent(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
}

// start returns nil when the handlers have been told of all objects there are, or the error of ctx. The
// watches go on until ctx ends.
func (s *source) start(ctx context.Context, running *sync.WaitGroup) error {
	for _, one := range []struct {
		kind     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{"extendedresources", s.devices, s.deviceHandler}, {"extendedresourceclaims", s.claims, s.claimHandler},
	} {
		if err := one.informer.SetTransform(dropManagedFields); err != nil {
			return err
		}
		err := one.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
			s.log.WithError(err).Warnf("could not read %s; will try again. If this stays: the server needs the rights in manifests/base/rbac.yaml", one.kind)
			cache.DefaultWatchErrorHandler(ctx, r, err)
		})
		if err != nil {
			return err
		}
		registration, err := one.informer.AddEventHandler(one.handler)
		if err != nil {
			return err
		}
		running.Go(func() { one.informer.RunWithContext(ctx) })
		if err := waitFor(ctx, registration.HasSyncedChecker().Done()); err != nil {
			return fmt.Errorf("reading %s: %w", one.kind, err)
		}
	}
	return nil
}

// dropManagedFields saves memory: nobody here reads who wrote which field.
func dropManagedFields(obj any) (any, error) {
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
	}
	return obj, nil
}
