package contract

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/arbiter/arbitertest"
	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reservations/store/storetest"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// durably gives a system Reservations to write.
func durably(o **storetest.Server) func(*system) {
	return func(s *system) { s.NoKind, *o = false, s.Store }
}

// names lists the objects.
func names(o *storetest.Server) []string {
	list := []string{}
	for _, object := range o.All() {
		list = append(list, object.Namespace+"/"+object.Name)
	}
	return list
}

// reserved is what is held or allocated of node-1, in milli-CPU.
func (s *system) reserved(t *testing.T) int64 {
	t.Helper()
	view, _, ok := s.ledger.Node("node-1")
	require.True(t, ok)
	return view.Amounts[0].Allocatable - view.Amounts[0].Free
}

func TestDurableReserveAndUnreserve(t *testing.T) {
	var o *storetest.Server
	onBoth(t, func(t *testing.T, s *system, r reserver.Reserver) {
		request := ask(aPod("a", "1"), aPod("b", "1500m"))
		request.Name, request.Namespace = "job", "default"
		answer, err := r.Reserve(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, "default/job", answer.Reservation)
		assert.Equal(t, []string{"default/job"}, names(o), "it is written before the answer")
		assert.WithinDuration(t, time.Now().Add(time.Minute), answer.ExpiresAt, eventually)
		assert.EqualValues(t, 2500, s.reserved(t))
		assert.Zero(t, s.allocations(), "the capacity is the object's")

		_, err = r.Unreserve(t.Context(), ask(request.Pods[0]))
		require.NoError(t, err)
		assert.EqualValues(t, 1500, s.reserved(t), "the capacity of one pod is given back")
		whole := &reserver.Request{SchedulerName: "s", Reservation: answer.Reservation}
		_, err = r.Unreserve(t.Context(), whole)
		require.NoError(t, err)
		assert.Empty(t, names(o))
		assert.Zero(t, s.reserved(t))
		_, err = r.Unreserve(t.Context(), whole)
		require.NoError(t, err, "what is gone is given back already")
	}, durably(&o))
}

func TestDurableRefusals(t *testing.T) {
	var o *storetest.Server
	onBoth(t, func(t *testing.T, s *system, r reserver.Reserver) {
		_, err := r.Reserve(t.Context(), ask(aPod("a", "3"), aPod("b", "2")))
		var refused *reserver.RefusedError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, []string{"b"}, refused.Answer.FailedPods)
		assert.Zero(t, o.CreateCount, "nothing is written for what does not fit")

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
		require.ErrorAs(t, err, &refused, "somebody else's capacity")
		assert.Len(t, names(o), 1)

		refusal := apierrors.NewForbidden(v1alpha1.Resource("reservations"), "r", errors.New("not yours"))
		o.NextCreates(storetest.Fate{Never: true, Err: refusal})
		_, err = r.Reserve(t.Context(), ask(aPod("d", "1")))
		require.ErrorAs(t, err, &refused)
		assert.ErrorContains(t, err, "not yours")
		assert.EqualValues(t, 3000, s.reserved(t), "what could not be written is not held")
	}, durably(&o))
}

// A repeat is the same reservation, also where the server has been started anew since and remembers no
// answers: the object has the request's name.
func TestDurableRepeats(t *testing.T) {
	var o *storetest.Server
	onBoth(t, func(t *testing.T, s *system, r reserver.Reserver) {
		request := ask(aPod("a", "3"))
		request.RequestID = "one"
		first, err := r.Reserve(t.Context(), request)
		require.NoError(t, err)
		again, err := r.Reserve(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, first, again)

		fresh := newSystem(t, func(fresh *system) {
			*fresh = system{World: arbitertest.NewWorld(s.ledger), ledger: s.ledger, router: fresh.router}
			fresh.Store = o
		})
		after, err := fresh.api.Reserve(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, first.Reservation, after.Reservation)
		assert.Equal(t, 1, o.CreateCount)
		assert.EqualValues(t, 3000, s.reserved(t))
	}, durably(&o))
}

// An answer that gets lost does not make a second object.
func TestLostDurableAnswer(t *testing.T) {
	var o *storetest.Server
	s := newSystem(t, durably(&o))
	var ids requestIDs
	c := newClient(t, client.Options{URL: loseAnswers(t, s, 2, &ids).URL})
	answer, err := c.Reserve(t.Context(), ask(aPod("a", "3")))
	require.NoError(t, err)
	assert.Equal(t, []string{answer.Reservation}, names(o))
	assert.Equal(t, 1, o.CreateCount)
	assert.Len(t, ids.all(), 3)
}
