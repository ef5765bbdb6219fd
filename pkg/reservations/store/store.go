// Package store reads and writes Reservation objects for those who must know
// whether a write was carried out. Every request is sent once, with a time limit
// that the API server knows, and Classify tells what its answer says.
//
// Who may be touched by a change here: pkg/reservations/deletedpods decides by
// Classify whether the room of a deleted pod is given back. An answer that is taken
// for a refusal although the object was written lets a reservation live on that
// nobody was told of. The arbiter has its own Classify, for writes of every kind.
package store

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
)

// DefaultTimeout bounds one request.
const DefaultTimeout = 7 * time.Second

// Store is the API server's Reservations. Safe for concurrent use.
type Store struct {
	rest    rest.Interface
	timeout time.Duration
}

// New returns a Store. A timeout of 0 means DefaultTimeout.
func New(client versioned.Interface, timeout time.Duration) *Store {
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	// The typed client would repeat a request whose answer asks to be tried later,
	// and tell the outcome of the last one only.
	return &Store{rest: client.GlobalreserveV1alpha1().RESTClient(), timeout: timeout}
}

// Create writes an object and returns it as it was stored.
func (s *Store) Create(ctx context.Context, rsv *v1alpha1.Reservation) (*v1alpha1.Reservation, error) {
	stored := &v1alpha1.Reservation{}
	err := s.send(ctx, s.rest.Post(), func(ctx context.Context, r *rest.Request) rest.Result {
		return r.Namespace(rsv.Namespace).Resource(resource).Body(rsv).Do(ctx)
	}).Into(stored)
	return stored, err
}

// Get reads an object live.
func (s *Store) Get(ctx context.Context, namespace, name string) (*v1alpha1.Reservation, error) {
	stored := &v1alpha1.Reservation{}
	err := s.send(ctx, s.rest.Get(), func(ctx context.Context, r *rest.Request) rest.Result {
		return r.Namespace(namespace).Resource(resource).Name(name).Do(ctx)
	}).Into(stored)
	return stored, err
}

// Delete deletes an object unless it has another UID than uid by now.
func (s *Store) Delete(ctx context.Context, namespace, name string, uid types.UID) error {
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	return s.send(ctx, s.rest.Delete(), func(ctx context.Context, r *rest.Request) rest.Result {
		return r.Namespace(namespace).Resource(resource).Name(name).Body(options).Do(ctx)
	}).Error()
}

// Patch changes an object by a JSON merge patch and returns it as it is stored then.
func (s *Store) Patch(ctx context.Context, namespace, name string, patch []byte) (*v1alpha1.Reservation, error) {
	stored := &v1alpha1.Reservation{}
	err := s.send(ctx, s.rest.Patch(types.MergePatchType), func(ctx context.Context, r *rest.Request) rest.Result {
		return r.Namespace(namespace).Resource(resource).Name(name).Body(patch).Do(ctx)
	}).Into(stored)
	return stored, err
}

// List reads the objects of all namespaces that have a label live.
func (s *Store) List(ctx context.Context, label string) ([]v1alpha1.Reservation, error) {
	list := &v1alpha1.ReservationList{}
	err := s.send(ctx, s.rest.Get(), func(ctx context.Context, r *rest.Request) rest.Result {
		return r.Resource(resource).Param("labelSelector", label).Do(ctx)
	}).Into(list)
	return list.Items, err
}

const resource = "reservations"

// send has a request sent once, within the time limit.
func (s *Store) send(
	ctx context.Context, r *rest.Request, do func(context.Context, *rest.Request) rest.Result,
) rest.Result {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	return do(ctx, r.MaxRetries(0).Timeout(max(time.Until(deadline), time.Millisecond)))
}
