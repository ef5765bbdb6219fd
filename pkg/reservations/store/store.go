// Package store reads and writes Reservation objects for callers that must know whether a write was carried out. Every
// request is sent once, with a time limit that the API server knows; apiwrite.Of reports what its answer says.
package store

import (
	"context"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
)

const (
	// Timeout bounds one request.
	Timeout = 7 * time.Second
	// Settle is after how long no write of a Reservation can still be waiting in the API server. Each write asks it
	// to give up after a few seconds.
	Settle = 15 * time.Second
)

// Store is the API server's Reservations. Safe for concurrent use.
type Store struct {
	rest   rest.Interface
	term   *election.OwnTerm
	writes *election.Writes
}

// New returns a Store. What it creates or changes carries the term.
func New(client versioned.Interface, term *election.OwnTerm, writes *election.Writes) *Store {
	// The typed client would repeat a request whose answer asks to be tried later,
	// and return the outcome of the last one only.
	return &Store{rest: client.GlobalreserveV1alpha1().RESTClient(), term: term, writes: writes}
}

// Create writes an object and returns it as it was stored.
func (s *Store) Create(ctx context.Context, rsv *v1alpha1.Reservation) (*v1alpha1.Reservation, error) {
	stored, object := &v1alpha1.Reservation{}, *rsv
	object.Annotations = s.term.Get().Annotate(maps.Clone(rsv.Annotations))
	err := s.writes.Do(ctx, func(ctx context.Context) error {
		return s.write(ctx, s.rest.Post()).Namespace(rsv.Namespace).Body(&object).Do(ctx).Into(stored)
	})
	return stored, err
}

// Get reads an object live.
func (s *Store) Get(ctx context.Context, namespace, name string) (*v1alpha1.Reservation, error) {
	stored := &v1alpha1.Reservation{}
	err := once(ctx, s.rest.Get()).Namespace(namespace).Name(name).Do(ctx).Into(stored)
	return stored, err
}

// Delete deletes an object as it was read: one that was changed since, or made anew, stays. A deletion carries no
// term: without this a late one could remove an object that another server has answered for.
func (s *Store) Delete(ctx context.Context, rsv *v1alpha1.Reservation) error {
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID:             &rsv.UID,
		ResourceVersion: &rsv.ResourceVersion,
	}}
	return s.writes.Do(ctx, func(ctx context.Context) error {
		return once(ctx, s.rest.Delete()).Namespace(rsv.Namespace).Name(rsv.Name).Body(options).Do(ctx).Error()
	})
}

// Patch changes an object by a JSON merge patch and returns it as it is stored then.
func (s *Store) Patch(ctx context.Context, namespace, name string, patch []byte) (*v1alpha1.Reservation, error) {
	stored := &v1alpha1.Reservation{}
	err := s.writes.Do(ctx, func(ctx context.Context) error {
		return s.write(ctx, s.rest.Patch(types.MergePatchType)).Namespace(namespace).Name(name).Body(patch).Do(ctx).
			Into(stored)
	})
	return stored, err
}

// List reads the objects of all namespaces that have a label live.
func (s *Store) List(ctx context.Context, label string) ([]v1alpha1.Reservation, error) {
	list := &v1alpha1.ReservationList{}
	err := once(ctx, s.rest.Get()).Param("labelSelector", label).Do(ctx).Into(list)
	return list.Items, err
}

// write makes a request one that carries the term, and that is sent once.
func (s *Store) write(ctx context.Context, r *rest.Request) *rest.Request {
	return once(ctx, r).Param("fieldManager", s.term.Get().Manager())
}

// once makes a request one that is sent once, and that the client and the API server give up in time.
func once(ctx context.Context, r *rest.Request) *rest.Request {
	limit := Timeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, max(time.Until(deadline), time.Millisecond))
	}
	return r.Resource("reservations").MaxRetries(0).Timeout(limit)
}
