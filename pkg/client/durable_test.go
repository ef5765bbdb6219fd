package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/restapi"
)

// objects are the cluster's Reservations.
type objects struct {
	ledger *ledger.Ledger

	mu      sync.Mutex // guards what follows
	list    map[string]*v1alpha1.Reservation
	creates int
	refuse  error // of every create
}

// durably gives a system Reservations to write.
func durably(o **objects) func(*system, *restapi.Options) {
	return func(s *system, options *restapi.Options) {
		*o = &objects{ledger: s.ledger, list: map[string]*v1alpha1.Reservation{}}
		options.Store = *o
	}
}

func (o *objects) Create(_ context.Context, rsv *v1alpha1.Reservation) (*v1alpha1.Reservation, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := rsv.Namespace + "/" + rsv.Name
	switch {
	case o.refuse != nil:
		return nil, o.refuse
	case o.list[key] != nil:
		return nil, apierrors.NewAlreadyExists(v1alpha1.Resource("reservations"), rsv.Name)
	}
	o.creates++
	stored := rsv.DeepCopy()
	stored.UID = types.UID(fmt.Sprint("uid-", o.creates))
	stored.CreationTimestamp = metav1.Time{Time: time.Now().Truncate(time.Second)}
	o.list[key] = stored
	return stored.DeepCopy(), nil
}

func (o *objects) Get(_ context.Context, namespace, name string) (*v1alpha1.Reservation, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if rsv := o.list[namespace+"/"+name]; rsv != nil {
		return rsv.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(v1alpha1.Resource("reservations"), name)
}

func (o *objects) Delete(_ context.Context, namespace, name string, _ types.UID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.list, namespace+"/"+name)
	return nil
}

func (o *objects) ReleaseSlots(_ context.Context, namespace, name string, slots []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	rsv := o.list[namespace+"/"+name]
	if rsv == nil {
		return errors.New("no such object")
	}
	for _, slot := range slots {
		rsv.Status.Slots = append(rsv.Status.Slots, v1alpha1.SlotStatus{Name: slot, State: v1alpha1.SlotReleased})
	}
	o.ledger.ReleaseHolds(namespace, name, slots...)
	return nil
}

// names lists the objects.
func (o *objects) names() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	names := []string{}
	for name := range o.list {
		names = append(names, name)
	}
	return names
}

// reserved is what is held or claimed of node-1, in milli-CPU.
func (s *system) reserved(t *testing.T) int64 {
	t.Helper()
	view, _, ok := s.ledger.Node("node-1")
	require.True(t, ok)
	return view.Amounts[0].Allocatable - view.Amounts[0].Free
}

func TestDurableReserveAndUnreserve(t *testing.T) {
	var o *objects
	onBoth(t, func(t *testing.T, s *system, r reserver.Reserver) {
		request := ask(aPod("a", "1"), aPod("b", "1500m"))
		request.Name, request.Namespace = "job", "default"
		answer, err := r.Reserve(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, "default/job", answer.Reservation)
		assert.Equal(t, []string{"default/job"}, o.names(), "it is written before the answer")
		assert.WithinDuration(t, time.Now().Add(time.Minute), answer.ExpiresAt, eventually)
		assert.EqualValues(t, 2500, s.reserved(t))
		assert.Zero(t, s.claims(), "the room is the object's")

		_, err = r.Unreserve(t.Context(), ask(request.Pods[0]))
		require.NoError(t, err)
		assert.EqualValues(t, 1500, s.reserved(t), "the room of one pod is given back")
		whole := &reserver.Request{SchedulerName: "s", Reservation: answer.Reservation}
		_, err = r.Unreserve(t.Context(), whole)
		require.NoError(t, err)
		assert.Empty(t, o.names())
		assert.Zero(t, s.reserved(t))
		_, err = r.Unreserve(t.Context(), whole)
		require.NoError(t, err, "what is gone is given back already")
	}, durably(&o))
}

func TestDurableRefusals(t *testing.T) {
	var o *objects
	onBoth(t, func(t *testing.T, s *system, r reserver.Reserver) {
		_, err := r.Reserve(t.Context(), ask(aPod("a", "3"), aPod("b", "2")))
		var refused *reserver.RefusedError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, []string{"b"}, refused.Answer.FailedPods)
		assert.Zero(t, o.creates, "nothing is written for what does not fit")

		partial := ask(aPod("a", "3"), aPod("b", "2"))
		partial.Mode, partial.Name = reserver.Partial, "job"
		answer, err := r.Reserve(t.Context(), partial)
		require.NoError(t, err)
		assert.Equal(t, []string{"b"}, answer.FailedPods)
		assert.EqualValues(t, 3000, s.reserved(t))

		other := ask(aPod("c", "1"))
		other.Name = "job"
		_, err = r.Reserve(t.Context(), other)
		var bad *reserver.BadRequestError
		require.ErrorAs(t, err, &bad, "the name is taken")
		assert.Equal(t, 409, bad.Status)

		theirs := &reserver.Request{SchedulerName: "another", Reservation: answer.Reservation}
		_, err = r.Unreserve(t.Context(), theirs)
		require.ErrorAs(t, err, &refused, "somebody else's room")
		assert.Len(t, o.names(), 1)

		o.mu.Lock()
		o.refuse = apierrors.NewForbidden(v1alpha1.Resource("reservations"), "r", errors.New("not yours"))
		o.mu.Unlock()
		_, err = r.Reserve(t.Context(), ask(aPod("d", "1")))
		require.ErrorAs(t, err, &refused)
		assert.ErrorContains(t, err, "not yours")
		assert.EqualValues(t, 3000, s.reserved(t), "what could not be written is not held")
	}, durably(&o))
}

func TestDurableDryRun(t *testing.T) {
	var o *objects
	onBoth(t, func(t *testing.T, s *system, r reserver.Reserver) {
		request := ask(aPod("a", "1"))
		request.DryRun = true
		before := s.ledger.Revision()
		_, err := r.Reserve(t.Context(), request)
		require.NoError(t, err)
		assert.Empty(t, o.names())
		assert.Equal(t, before, s.ledger.Revision())
	}, durably(&o))
}

// A repeat is the same reservation, also where the server has been started anew since and remembers no
// answers: the object has the request's name.
func TestDurableRepeats(t *testing.T) {
	var o *objects
	onBoth(t, func(t *testing.T, s *system, r reserver.Reserver) {
		request := ask(aPod("a", "3"))
		request.RequestID = "one"
		first, err := r.Reserve(t.Context(), request)
		require.NoError(t, err)
		again, err := r.Reserve(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, first, again)

		fresh := newSystem(t, func(_ *system, options *restapi.Options) {
			options.Ledger, options.Store = s.ledger, o
		})
		after, err := fresh.api.Reserve(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, first.Reservation, after.Reservation)
		assert.Equal(t, 1, o.creates)
		assert.EqualValues(t, 3000, s.reserved(t))
	}, durably(&o))
}

// An answer that gets lost does not make a second object.
func TestLostDurableAnswer(t *testing.T) {
	var o *objects
	s := newSystem(t, durably(&o))
	var ids requestIDs
	c := newClient(t, client.Options{URL: loseAnswers(t, s, 2, &ids).URL})
	answer, err := c.Reserve(t.Context(), ask(aPod("a", "3")))
	require.NoError(t, err)
	assert.Equal(t, []string{answer.Reservation}, o.names())
	assert.Equal(t, 1, o.creates)
	assert.Len(t, ids.all(), 3)
}
