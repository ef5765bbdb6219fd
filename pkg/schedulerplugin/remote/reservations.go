package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/generated/informers/externalversions"
	"github.com/globalreserve/globalreserve/pkg/reservations/matcher"
)

// discoverEvery is how often it is looked whether the cluster knows Reservations.
const discoverEvery = 10 * time.Second

// reservations tells a matcher which pods may use which reservations.
type reservations struct {
	client  versioned.Interface
	matcher *matcher.Matcher
	log     logrus.FieldLogger

	mu     sync.Mutex // guards notify
	notify []func(namespace string)
}

// newObjects returns the client of our kinds of objects.
func newObjects(config *rest.Config) (versioned.Interface, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	objects, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client for reservations and claims: %w", err)
	}
	return objects, nil
}

// run follows the Reservation objects, once there are any to follow, until ctx ends.
func (r *reservations) run(ctx context.Context) {
	err := wait.PollUntilContextCancel(ctx, discoverEvery, true, func(ctx context.Context) (bool, error) {
		_, err := r.client.Discovery().ServerResourcesForGroupVersionWithContext(ctx, v1alpha1.SchemeGroupVersion.String())
		if err != nil && !apierrors.IsNotFound(err) {
			r.log.WithError(err).Warn("Cannot find out whether the cluster knows Reservations; will try again")
		}
		return err == nil, nil
	})
	if err != nil {
		return // stopping
	}
	factory := externalversions.NewSharedInformerFactory(r.client, 0)
	informer := factory.Globalreserve().V1alpha1().Reservations().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: r.add, UpdateFunc: func(_, after any) { r.set(after) }, DeleteFunc: r.remove,
	}); err != nil {
		r.log.WithError(err).Error("Reservations are not followed: pods will not prefer them")
		return
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

// add takes in a reservation that is new here. Its room may be in the ledger, and so in the
// mirror, for long: pods that may use it have not been told of it then. Who may use a
// reservation never changes afterwards.
func (r *reservations) add(object any) {
	r.set(object)
	rsv, ok := object.(*v1alpha1.Reservation)
	if !ok {
		return
	}
	r.mu.Lock()
	notify := r.notify
	r.mu.Unlock()
	for _, f := range notify {
		f(rsv.Namespace)
	}
}

func (r *reservations) set(object any) {
	if rsv, ok := object.(*v1alpha1.Reservation); ok {
		if err := r.matcher.Set(rsv); err != nil {
			r.log.WithError(err).Warn("No pod can use a reservation")
		}
	}
}

func (r *reservations) remove(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if rsv, ok := object.(*v1alpha1.Reservation); ok {
		r.matcher.Remove(rsv.Namespace, rsv.Name)
	}
}
