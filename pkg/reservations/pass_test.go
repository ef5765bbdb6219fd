package reservations

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// gang is a reservation of some slots of 1 CPU.
func gang(name string, slots int) *v1alpha1.Reservation {
	rsv := newReservation(name, 0)
	for i := range slots {
		rsv.Spec.Slots = append(rsv.Spec.Slots, slot(fmt.Sprint("s", i), "", 1000))
	}
	return rsv
}

// nowOf is what the controller's clock shows.
func (w *world) nowOf() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

// until returns how long it takes by the controller's clock until something is so.
func (w *world) until(what func() bool) time.Duration {
	begun := w.nowOf()
	for range 10_000 {
		if w.pass(passPause / 10); what() {
			return w.nowOf().Sub(begun)
		}
	}
	require.Fail(w.t, "it never is")
	return 0
}

// Many large reservations of one namespace, which fit nowhere, do not keep that of another one waiting, and each of
// them is tried.
func TestNamespacesTakeTurnsInAPass(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNode("n1")
		const many = 40
		for i := range many { // each attempt takes some 120 ms: 5 slots, of which the last fits nowhere
			w.create(gang(fmt.Sprint("gang-", i), 5))
		}
		w.cost.Store(int64(20 * time.Millisecond))
		w.c.Retry()
		one := newReservation("one", 0, slot("a", "", 1000))
		one.Namespace = "other"
		_, err := w.client.GlobalreserveV1alpha1().Reservations("other").Create(w.ctx(), one, metav1.CreateOptions{})
		require.NoError(t, err)
		took := w.until(func() bool { return len(w.ledger.ReservationSlots("other", "one")) == 1 })
		assert.Less(t, took, 2*passRestMost, "not for the %d attempts of the namespace with many", many)

		w.refused = nil
		w.ledger.ReleaseSlots("other", "one", "a")
		for _, r := range w.c.records {
			r.refusedFor = ""
		}
		w.until(func() bool { return len(w.refused) == many })
	})
}

// A reservation that takes long to find no place for is tried less often, in proportion to that; what was freed
// meanwhile is not forgotten. One that takes no time is tried at once.
func TestAttemptsRest(t *testing.T) {
	for cost, most := range map[time.Duration]time.Duration{
		0: passRestMost, 15 * time.Millisecond: 5 * time.Second, time.Second: 2 * passAgain,
	} {
		t.Run(cost.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addNode("n1")
				require.True(t, w.bind("p1", "n1", 3000))
				w.cost.Store(int64(cost))
				w.create(gang("g", 3))
				w.until(func() bool { return w.get("g").Status.Phase == v1alpha1.ReservationPending })
				w.deletePod("p1")
				took := w.until(func() bool { return len(w.held("g")) == 3 })
				assert.LessOrEqual(t, took, most)
				assert.Greater(t, took, most/2-passRestMost/2)
			})
		})
	}
}

// What a limit forbids needs no look at the nodes, and an attempt ends at some time.
func TestAttemptsAreShort(t *testing.T) {
	for want, test := range map[string]struct {
		slots int64
		cost  time.Duration
	}{"Pending SlotLimit": {3, time.Hour}, "Pending NotGranted": {4, 2 * time.Second}, "Available AllSlotsHeld": {4, time.Second}} {
		t.Run(want, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addNode("n1")
				w.ledger.Observer().SetLimits(ledger.OfNamespace, map[string]*ledger.Limits{"ns": {Slots: &test.slots}})
				w.cost.Store(int64(test.cost))
				w.create(gang("g", 4))
				assert.Contains(t, w.shown("g"), want)
			})
		})
	}
}
