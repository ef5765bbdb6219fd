package reservations

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// available makes an object say that all its slots are held.
func available(rsv *v1alpha1.Reservation, node string) *v1alpha1.Reservation {
	now := metav1.Time{Time: time.Now().Truncate(time.Second)}
	rsv.Status = v1alpha1.ReservationStatus{
		Phase: v1alpha1.ReservationAvailable, NodeName: node, AvailableAt: &now,
		ExpiresAt: &metav1.Time{Time: now.Add(1000 * time.Hour)},
	}
	for _, s := range rsv.Spec.Slots {
		rsv.Status.Slots = append(rsv.Status.Slots, v1alpha1.SlotStatus{
			Name: s.Name, NodeName: node, NodeUID: types.UID("uid-of-" + cmp.Or(s.NodeName, node)), State: v1alpha1.SlotReserved,
		})
	}
	return rsv
}

// TestForged has objects say that capacity was granted to them which never was, when a server meets them at its start
// and later. Another reservation has 3 of the 4 CPUs of node n1, and a pod 1 of n2.
func TestForged(t *testing.T) {
	const waits = "Pending InsufficientResource  0/1"
	cases := map[string]struct {
		forged func() *v1alpha1.Reservation
		want   string
	}{
		"status": {func() *v1alpha1.Reservation {
			return available(newReservation("r", time.Hour, slot("a", "n1", 2000)), "n1")
		}, waits},
		"status on a node that the spec does not name": {func() *v1alpha1.Reservation {
			return available(newReservation("r", time.Hour, slot("a", "n1", 2000)), "n2")
		}, waits},
		"status, and there is capacity elsewhere": {func() *v1alpha1.Reservation {
			return available(newReservation("r", time.Hour, slot("a", "", 2000)), "n1")
		}, "Available AllSlotsHeld n2 0/1 a@n2=Reserved"},
		"status of a resource that no node has, and a pod uses the slot": {func() *v1alpha1.Reservation {
			rsv := newReservation("r", time.Hour, slot("a", "n2", 1500))
			rsv.Spec.Slots[0].Requests["example.com/gpu"] = rsv.Spec.Slots[0].Requests["cpu"]
			rsv.Spec.AllocatePolicy = v1alpha1.AllocateAligned
			return available(rsv, "n2")
		}, waits},
		"label": {func() *v1alpha1.Reservation {
			return madeBy(newReservation("r", time.Hour, slot("a", "n1", 2000)), convert.MadeByReserve)
		}, waits},
		"all slots, of which one fits": {func() *v1alpha1.Reservation {
			return available(newReservation("r", time.Hour, slot("a", "n1", 500), slot("b", "n1", 1000)), "n1")
		}, "Pending InsufficientResource  0/2"},
	}
	for name, tc := range cases {
		for _, restart := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", at the start", false: ", later"}[restart], func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					w.addNode("n2")
					w.bind("p", "n2", 1000)
					w.pods[podRef("p").String()].Annotations = &cluster.Annotations{Matched: slotRef("r", "a")}
					w.create(newReservation("granted", time.Hour, slot("a", "n1", 3000)))
					require.Equal(t, []string{"a@n1"}, w.held("granted"))
					forged := func() {
						w.pass(time.Second)
						w.create(tc.forged())
					}
					if restart {
						w.stop()
						forged()
						w.comeBack()
					} else {
						forged()
					}
					w.settle()
					w.assertShown("r", tc.want, nil)
					assert.Equal(t, []string{"a@n1"}, w.held("granted"), "what was granted stays")
					assert.Zero(t, w.ledger.Stats().OvercommittedNodes)
				})
			})
		}
	}
}

// TestOlderComesFirst has objects of both orders of their names allocation the same capacity at a start.
func TestOlderComesFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(newReservation("m", time.Hour, slot("a", "n1", 3000)))
		w.stop()
		w.pass(2 * time.Second)
		w.create(available(newReservation("a", time.Hour, slot("a", "n1", 3000)), "n1"))
		w.create(madeBy(newReservation("z", time.Hour, slot("a", "n1", 3000)), convert.MadeByReserve))
		w.comeBack()
		w.settle()
		assert.Equal(t, []string{"a@n1"}, w.held("m"))
		assert.Empty(t, append(w.held("a"), w.held("z")...))
	})
}

// TestForgedSize has an object say that it has more capacity than what is kept under its name, of a pod that was
// deleted while the server started.
func TestForgedSize(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.bind("p", "n1", 3000)
		w.stop()
		w.create(available(newReservation("r", time.Hour, slot("a", "n1", 2000)), "n1"))
		w.newServer()
		w.tellLedger()
		w.ledger.ObserveSlot(ledger.Slot{Ref: slotRef("r", "a"), Node: "n1", Request: request(1000), Policy: ledger.Once})
		w.start()
		w.settle()
		assert.Equal(t, "Pending InsufficientResource  0/1", w.shown("r"))
		assert.Zero(t, w.ledger.Stats().OvercommittedNodes)
	})
}

// TestForgedEnd has an object say that it lasts longer than the policy allows.
func TestForgedEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.stop()
		rsv := available(newReservation("r", time.Minute, slot("a", "n1", 1000)), "n1")
		w.create(rsv)
		w.comeBack()
		w.settle()
		require.Equal(t, []string{"a@n1"}, w.held("r"))
		kept := w.ledger.ReservationSlots(testNamespace, "r")[0]
		assert.Equal(t, rsv.Status.AvailableAt.Time, kept.AvailableAt)
		assert.Equal(t, rsv.Status.AvailableAt.Add(time.Minute), kept.Deadline)
		assert.Equal(t, rsv.Status.AvailableAt.Add(time.Minute), w.get("r").Status.ExpiresAt.Time)
	})
}

// TestForgedWithoutSlots has an object say that it is available and nothing of its slots, while more happens at the
// start than the ledger remembers.
func TestForgedWithoutSlots(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.stop()
		rsv := newReservation("r", time.Hour, slot("a", "n1", 1000))
		rsv.Status.Phase = v1alpha1.ReservationAvailable
		w.create(rsv)
		w.newServer()
		for range 1 << 15 {
			w.ledger.ObserveNode(ledger.NodeObservation{Name: "busy"})
			w.ledger.RemoveNode("busy")
		}
		w.start()
		w.settle()
		assert.Equal(t, "Available AllSlotsHeld n1 0/1 a@n1=Reserved", w.shown("r"))
		assert.Equal(t, []string{"a@n1"}, w.held("r"))
	})
}
