package rest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// A step of the wall clock does not move the end of what is kept in memory. The end is shown by the wall clock as it is
// now, and a repeat gets the answer that there was.
func TestStepOfTheWallClock(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			var stepped atomic.Int64
			f := newBareFixture(t)
			f.NoKind = true
			f.Clock = steady.New(func() time.Time { return time.Now().Add(time.Duration(stepped.Load())) }, steady.Uptime)
			f.start(Limits{})
			request := gangOf("node-1", aPod("before", "1", "1Gi"))
			request.RequestID = "r"
			before := f.reserve(request)
			require.True(t, before.Granted(), "%+v", before)

			stepped.Store(int64(step))
			assert.Equal(t, before, f.reserve(request), "a repeat is known")
			after := f.reserve(gangOf("node-1", aPod("after", "1", "1Gi")))
			require.True(t, after.Granted(), "%+v", after)
			all := get[reserver.ReservationsAnswer](f, "/v1/reservations")
			require.Len(t, all.Reservations, 2)
			deadlines, _ := f.ledger.Slots()
			for i := range all.Reservations {
				assert.WithinDuration(t, before.ExpiresAt.Add(step), all.Reservations[i].ExpiresAt, time.Minute)
				assert.WithinDuration(t, before.ExpiresAt, deadlines[i].Deadline, time.Minute, "the ledger's clock is steady")
			}
			assert.WithinDuration(t, before.ExpiresAt.Add(step), after.ExpiresAt, time.Minute)
		})
	}
}
