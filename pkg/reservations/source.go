package reservations

import (
	"context"
	"sync"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	informers "github.com/globalreserve/globalreserve/pkg/generated/informers/externalversions/globalreserve/v1alpha1"
)

// source is the watch on Reservations.
type source struct {
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandler
	log      logrus.FieldLogger
}

func newSource(client versioned.Interface, handler cache.ResourceEventHandler, log logrus.FieldLogger) *source {
	return &source{
		informer: informers.NewFilteredReservationInformer(client, metav1.NamespaceAll, 0, cache.Indexers{}, consistent),
		handler:  handler, log: log,
	}
}

// consistent asks for the newest state where a reflector would take what some
// API server has cached: an object acknowledged just before a restart must be in
// the first list.
func consistent(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
}

// start returns nil when the handler has been told of all objects there are, or
// the error of ctx. The watch goes on until ctx ends.
func (s *source) start(ctx context.Context, running *sync.WaitGroup) error {
	if err := s.informer.SetTransform(dropManagedFields); err != nil {
		return err
	}
	err := s.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		s.log.WithError(err).Warn("could not read reservations; will try again. If this stays: the server needs the rights in manifests/base/rbac.yaml")
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return err
	}
	registration, err := s.informer.AddEventHandler(s.handler)
	if err != nil {
		return err
	}
	running.Go(func() { s.informer.RunWithContext(ctx) })
	return waitFor(ctx, registration.HasSyncedChecker().Done())
}

// has reports whether the watch knows an object of a name.
func (s *source) has(key string) bool {
	_, ok, err := s.informer.GetStore().GetByKey(key)
	return ok && err == nil
}

// dropManagedFields saves memory: nobody here reads who wrote which field.
func dropManagedFields(obj any) (any, error) {
	if rsv, ok := obj.(*v1alpha1.Reservation); ok {
		rsv.ManagedFields = nil
	}
	return obj, nil
}
