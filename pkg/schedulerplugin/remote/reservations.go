package remote

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter/matcher"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
)

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

// reservations tells a matcher which pods may use which reservations.
type reservations struct {
	matcher *matcher.Matcher
	matched func(namespace string)
	log     logrus.FieldLogger
}

// watch returns what follows the Reservation objects, while the cluster knows them.
func (r *reservations) watch(client versioned.Interface, kind *follow.Kind) func(context.Context) error {
	watch := follow.NewWatch(kind, r.log, follow.NewSource(client, "reservations",
		client.GlobalreserveV1alpha1().Reservations(metav1.NamespaceAll), &v1alpha1.Reservation{}, r.set, r.remove))
	nothing := func(context.Context) {}
	return func(ctx context.Context) error { return watch.Run(ctx, nothing, nothing) }
}

// set takes in a state of a reservation. The capacity of one that is new here may be in the ledger, and so in the
// mirror, for long: pods that may use it have not been told of it then. Who may use a
// reservation never changes afterwards.
func (r *reservations) set(rsv *v1alpha1.Reservation, _ bool) {
	before := r.matcher.Origin(rsv.Namespace, rsv.Name)
	if err := r.matcher.Set(rsv); err != nil {
		r.log.WithError(err).Warn("No pod can use a reservation")
	}
	if now := r.matcher.Origin(rsv.Namespace, rsv.Name); now.UID != "" && now.UID != before.UID {
		r.matched(rsv.Namespace)
	}
}

func (r *reservations) remove(rsv *v1alpha1.Reservation) { r.matcher.Remove(rsv.Namespace, rsv.Name) }
