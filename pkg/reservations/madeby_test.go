package reservations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// TestMadeByServer checks the objects that the server makes for slots it placed
// before, in every order in which news of both can come.
func TestMadeByServer(t *testing.T) {
	place := func(w *world, ttl time.Duration) *v1alpha1.Reservation {
		rsv := forPod(madeBy(newReservation("r", ttl, slot("a", "n1", 1000), slot("b", "n1", 1000)), convert.MadeByReserve),
			"uid-of-p")
		rsv.Spec.Slots[1].Pod = &v1alpha1.PodReference{Name: "q", UID: "uid-of-q"}
		kept, err := convert.Slots(w.ledger.Table(), rsv)
		require.NoError(w.t, err)
		require.Equal(w.t, 2, w.ledger.Reserve(ledger.Plan{Slots: kept}, time.Now()).Granted)
		return rsv
	}
	type testCase struct {
		steps func(w *world)
		want  string
		held  []string // where these are not those that are shown as reserved
	}
	cases := map[string]testCase{
		"available since its creation": {steps: func(w *world) {
			w.create(place(w, time.Minute))
			rsv := w.get("r")
			require.Equal(w.t, rsv.CreationTimestamp.Time, rsv.Status.AvailableAt.Time)
			require.Equal(w.t, rsv.CreationTimestamp.Add(time.Minute), rsv.Status.ExpiresAt.Time)
			require.Equal(w.t, rsv.Status.ExpiresAt.Time, w.ledger.ReservationSlots(testNamespace, "r")[0].Deadline)
		}, want: "Available AllSlotsHeld n1 0/2 a@n1=Reserved b@n1=Reserved"},
		"used before the watch tells": {steps: func(w *world) {
			rsv := place(w, time.Minute)
			w.bind("p", "n1", 1000)
			w.create(rsv)
		}, want: "Available AllSlotsHeld n1 1/2 a@n1=Consumed:p b@n1=Reserved"},
		"used before the watch tells, and a server that decided before says that it waits": {steps: func(w *world) {
			rsv := place(w, time.Minute)
			rsv.Status.Phase = v1alpha1.ReservationPending
			w.bind("p", "n1", 1000)
			w.create(rsv)
		}, want: "Available AllSlotsHeld n1 1/2 a@n1=Consumed:p b@n1=Reserved"},
		"used up before the watch tells": {steps: func(w *world) {
			rsv := place(w, time.Minute)
			w.bind("p", "n1", 1000)
			w.bind("q", "n1", 1000)
			w.create(rsv)
		}, want: "deleted"},
		"given back before the watch tells": {steps: func(w *world) {
			rsv := place(w, time.Minute)
			w.ledger.ReleaseSlots(testNamespace, "r")
			w.create(rsv)
		}, want: "deleted"},
		"the label alone, until its ttl is over": {steps: func(w *world) {
			w.create(madeBy(newReservation("r", time.Minute, slot("a", "n1", 5000)), convert.MadeByReserve))
			require.Equal(w.t, "Pending InsufficientResource  0/1", w.shown("r"), "the label holds nothing")
			w.pass(2 * time.Minute)
		}, want: "deleted"},
		"the label alone, and there is capacity": {steps: func(w *world) {
			w.create(madeBy(newReservation("r", time.Minute, slot("a", "n1", 1000)), convert.MadeByReserve))
		}, want: "Available AllSlotsHeld n1 0/1 a@n1=Reserved"},
		"deleted, while its name is used again": {steps: func(w *world) {
			rsv := place(w, time.Minute)
			w.create(rsv)
			w.ledger.ReleaseSlots(testNamespace, "r") // given back, ...
			place(w, time.Minute)                     // ... reserved again, and only then the watch reports the deletion
			objects := w.client.GlobalreserveV1alpha1().Reservations(testNamespace)
			if err := objects.Delete(w.ctx(), "r", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				assert.NoError(w.t, err) // else the controller was sooner
			}
		}, want: "deleted", held: []string{"a@n1", "b@n1"}},
	}
	bubble.Each(t, cases, func(t *testing.T, tc testCase) {
		w := newWorld(t, "n1", "n2")
		tc.steps(w)
		w.settle()
		w.assertShown("r", tc.want, tc.held)
	})
}

// TestFormerLeader checks that a server that does not decide any more leaves the objects of the one that does as they
// are.
func TestFormerLeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(madeBy(newReservation("ending", time.Minute, slot("a", "n1", 1000)), convert.MadeByReserve))
		w.former.Store(true)
		require.Error(t, w.c.ReleaseSlots(w.ctx(), testNamespace, "ending", []string{"a"}))
		w.create(madeBy(newReservation("new", time.Hour, slot("a", "n1", 1000)), convert.MadeByReserve))
		w.pass(2 * time.Minute)
		assert.Equal(t, "   ", w.shown("new"))
		assert.NotEqual(t, "deleted", w.shown("ending"))
	})
}
