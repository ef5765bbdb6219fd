package reservations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// How far a drain is follows its places, also where they are gone, and after a restart.
func TestDrained(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, name := range []string{"web", "large", "db"} {
			rsv := newReservation(name, time.Minute, slot("a", "n1", 500), slot("b", "n1", 500))
			if name == "large" {
				rsv.Spec.Slots[0] = slot("a", "n1", 50_000)
			}
			rsv.Labels = map[string]string{v1alpha1.DrainLabel: "drain-1"}
			w.create(rsv)
		}
		w.create(newReservation("other", time.Minute, slot("a", "n1", 500)))
		require.True(t, w.bind("p", "n1", 500, slotRef("web", "a")))
		w.settle()
		want := map[string]Drained{
			"db": {Phase: "Available", Unused: 2}, "web": {Phase: "Available", Used: 1, Unused: 1}, "large": {Phase: "Pending"},
		}
		shown := func() (names []string) {
			for _, d := range w.c.Drained() {
				names = append(names, d.Reservation.Name)
				if d.Reservation.Name == "large" {
					assert.Contains(t, d.Message, "n1")
				}
				d.Reservation, d.Message = nil, ""
				assert.Equal(t, want[names[len(names)-1]], d, names)
			}
			return names
		}
		assert.Equal(t, []string{"db", "large", "web"}, shown())
		w.stop()
		w.comeBack()
		w.settle()
		assert.Equal(t, []string{"db", "large", "web"}, shown())
		w.pass(2 * time.Minute)
		want["db"], want["web"] = Drained{Phase: "Expired"}, Drained{Phase: "Expired", Used: 1}
		assert.Equal(t, []string{"db", "large", "web"}, shown())
	})
}
