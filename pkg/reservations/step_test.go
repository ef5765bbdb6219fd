package reservations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reservations/convert"
)

// A step of the wall clock neither ends a reservation early nor lets it last longer. An object says when the wall
// clock shows its end at the time that is written.
func TestStepOfTheWallClock(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.create(newReservation("before", time.Minute, slot("a", "n1", 500)))
				w.create(newReservation("extended", time.Minute, slot("a", "n1", 500)))
				made := func(name string) *v1alpha1.Reservation {
					rsv := madeBy(newReservation(name, time.Minute, slot("a", "n1", 500)), convert.MadeByReserve)
					kept, err := convert.Slots(w.ledger.Table(), rsv)
					require.NoError(t, err)
					require.Equal(t, 1, w.ledger.Reserve(ledger.Plan{Slots: kept}, time.Now()).Granted)
					return rsv
				}
				w.create(made("made-before"))
				w.stepped.Store(int64(step))
				w.create(newReservation("after", time.Minute, slot("a", "n1", 500)))
				w.create(made("made-after")) // the API server's clock is not stepped
				expires := w.get("after").Status.ExpiresAt
				require.NotNil(t, expires)
				assert.WithinDuration(t, time.Now().Add(step+time.Minute), expires.Time, time.Second)

				w.change("before", func(rsv *v1alpha1.Reservation) { rsv.Labels = map[string]string{"seen": "again"} })
				was := w.get("extended").Status.ExpiresAt
				w.change("extended", func(rsv *v1alpha1.Reservation) { rsv.Spec.TTL.Duration = 2 * time.Minute })
				assert.Equal(t, was.Add(time.Minute), w.get("extended").Status.ExpiresAt.Time)

				all := []string{"before", "made-before", "after", "made-after"}
				w.pass(50 * time.Second)
				for _, name := range all {
					assert.Equal(t, []string{"a@n1"}, w.held(name), name)
				}
				w.pass(12 * time.Second)
				w.settle()
				for _, name := range all {
					assert.Empty(t, w.held(name), name)
				}
				w.pass(48 * time.Second)
				assert.Equal(t, []string{"a@n1"}, w.held("extended"))
				w.pass(12 * time.Second)
				w.settle()
				assert.Empty(t, w.held("extended"))
				assert.Equal(t, "Expired Expired n1 0/1 a@n1=Released", w.shown("extended"))
			})
		})
	}
}

// A server that starts after a step believes what objects say.
func TestStepBeforeARestart(t *testing.T) {
	for step, want := range map[time.Duration][]string{time.Hour: nil, -time.Hour: {"a@n1"}} {
		t.Run(step.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.create(newReservation("r", time.Minute, slot("a", "n1", 500)))
				expires := w.get("r").Status.ExpiresAt.Time
				w.stop()
				w.stepped.Store(int64(step))
				w.newServer()
				w.start()
				w.settle()
				assert.ElementsMatch(t, want, w.held("r"))
				assert.Equal(t, expires, w.get("r").Status.ExpiresAt.Time)
			})
		})
	}
}
