package reservations

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/steady"
	"github.com/globalreserve/globalreserve/test/background"
)

// TestTTL checks that the object and the ledger agree to the moment on when a
// reservation expires, and that it does not end before.
func TestTTL(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pass(300 * time.Millisecond) // no whole second
		w.create(newReservation("r", 10*time.Second, slot("a", "n1", 1000)))
		placed := time.Now()
		expires := w.get("r").Status.ExpiresAt
		require.NotNil(t, expires)
		assert.Equal(t, w.get("r").Status.AvailableAt.Add(10*time.Second), expires.Time)
		assert.Equal(t, expires.Time, w.ledger.ReservationSlots(testNamespace, "r")[0].Deadline)
		assert.GreaterOrEqual(t, expires.Sub(placed), 9700*time.Millisecond)

		w.pass(time.Until(expires.Time) - time.Millisecond)
		assert.Equal(t, []string{"a@n1"}, w.held("r"))

		w.change("r", func(rsv *v1alpha1.Reservation) { rsv.Spec.TTL.Duration = 20 * time.Second; rsv.Generation = 2 })
		longer := w.get("r").Status.ExpiresAt
		assert.Equal(t, expires.Add(10*time.Second), longer.Time)
		assert.EqualValues(t, 2, w.get("r").Status.ObservedGeneration)

		w.change("r", func(rsv *v1alpha1.Reservation) { rsv.Spec.TTL.Duration = maxTTL + time.Second })
		assert.Equal(t, longer.Time, w.get("r").Status.ExpiresAt.Time, "more than the policy allows changes nothing")

		w.pass(time.Until(longer.Time) - time.Millisecond)
		assert.Equal(t, []string{"a@n1"}, w.held("r"))
		w.pass(2 * time.Millisecond)
		w.settle()
		assert.Empty(t, w.held("r"))
		assert.Equal(t, "Expired Expired n1 0/1 a@n1=Released", w.shown("r"))
		assert.Equal(t, longer.Time, w.get("r").Status.ExpiresAt.Time, "what was promised stays on record")
		assert.Equal(t, []string{"r Normal Available", "r Normal Extended", "r Warning TTLTooLong", "r Normal Expired"},
			w.events.all())
	})
}

func TestTTLForever(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(newReservation("r", 10*time.Second, slot("a", "n1", 1000)))
		w.change("r", func(rsv *v1alpha1.Reservation) { rsv.Spec.TTL.Duration = 0 })
		assert.Nil(t, w.get("r").Status.ExpiresAt)
		w.pass(time.Hour)
		assert.Equal(t, []string{"a@n1"}, w.held("r"))
	})
}

// TestExpiryWaitsForABind checks that neither the slot nor the phase end while a bind is in flight.
func TestExpiryWaitsForABind(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(newReservation("r", 10*time.Second, slot("a", "n1", 1000), slot("b", "n1", 1000)))
		p := ledger.Placement{
			Pod: podRef("p"), Node: "n1", Request: request(1000),
			Slots: []ledger.SlotRef{slotRef("r", "a")},
		}
		_, refused := w.ledger.StartBind(&p, time.Now())
		require.Nil(t, refused)
		w.pass(15 * time.Second)
		w.settle()
		assert.Equal(t, "Available AllSlotsHeld n1 0/2 a@n1=Reserved b@n1=Released", w.shown("r"))
		w.ledger.Confirm(p.Pod, "n1")
		w.settle()
		assert.Equal(t, "Expired Expired n1 1/2 a@n1=Consumed:p b@n1=Released", w.shown("r"))
	})
}

// TestOrder checks that capacity that is freed goes to the highest priority, then to
// the oldest, and that one that does not fit keeps nobody from it.
func TestOrder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.bind("p", "n1", 4000)
		priority := func(p int32, rsv *v1alpha1.Reservation) *v1alpha1.Reservation {
			rsv.Spec.Priority = &p
			return rsv
		}
		w.create(newReservation("old", 0, slot("a", "n1", 3000)))
		w.pass(time.Second)
		w.create(newReservation("young", 0, slot("a", "n1", 3000)))
		w.pass(time.Second)
		w.create(priority(5, newReservation("high", 0, slot("a", "n1", 3000))))
		w.create(priority(9, newReservation("never", 0, slot("a", "n1", 5000))))
		w.deletePod("p")
		for _, next := range []string{"high", "old", "young"} {
			w.settle()
			for _, name := range []string{"high", "old", "young"} {
				assert.Equal(t, name == next, len(w.held(name)) > 0, "%s, while %s is next", name, next)
			}
			w.delete(next)
		}
	})
}

func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger.New(ledger.Options{})
		placementtest.Nodes(l, 4000, "a")
		log, _ := logtest.NewNullLogger()
		defer background.Run(t, func(ctx context.Context) error {
			return Expire(ctx, l.Observer(), steady.New(time.Now, steady.Uptime), log)
		})()
		reserve := func(name string, ttl time.Duration) {
			placement := ledger.Placement{
				Pod: ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID(name)}, Node: "a",
				Request: placementtest.Request(1000),
			}
			plan := ledger.NewPlan([]ledger.Placement{placement}, ledger.AllOrNothing, time.Now().Add(ttl))
			require.Equal(t, 1, l.Reserve(plan, time.Now()).Granted)
		}
		advance := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		expired := func() uint64 { return l.Stats().InMemoryExpired }
		reserve("one", 10*time.Second)
		reserve("two", 5*time.Second) // sooner than the one waited for
		reserve("three", time.Hour)
		advance(5*time.Second - time.Nanosecond)
		assert.EqualValues(t, 0, expired())
		advance(time.Nanosecond)
		assert.EqualValues(t, 1, expired())
		advance(5 * time.Second)
		assert.EqualValues(t, 2, expired())
		assert.Equal(t, 1, l.Stats().InMemory)
	})
}
