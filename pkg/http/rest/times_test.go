package rest

import (
	"context"
	"regexp"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/steady"
	"github.com/globalreserve/globalreserve/test/background"
)

var regexpTime = regexp.MustCompile(`"Time":"`)

// A change has the time it was made at, also where nobody watched then, and the same one for everybody.
func TestTimesOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger.New(ledger.Options{FirstRevision: 1000})
		api := New(Options{Ledger: l.Reader, Clock: steady.New(time.Now, steady.Uptime)})
		stop := background.Run(t, func(ctx context.Context) error { return api.Run(ctx) })
		defer stop()
		var made []time.Time
		for range 5 {
			<-time.After(time.Hour)
			l.ObserveNode(ledger.NodeObservation{Name: time.Now().String()})
			made = append(made, time.Now())
		}
		<-time.After(time.Hour)
		for range 2 {
			events, ok := api.eventsSince(nil, 1000, 10)
			require.True(t, ok)
			for i := range events {
				assert.WithinDuration(t, made[i], api.times.of(events[i].Revision), 2*notePause)
			}
		}
		batch, ok := api.batchAfter(1003)
		require.True(t, ok)
		assert.Contains(t, string(batch.line), made[4].UTC().Format(`"Time":"2006-01-02T15:04:05`))
	})
}

// What comes at the same time has its time once in a batch, which programs read.
func TestBatchesTellATimeOnce(t *testing.T) {
	f := newFixture(t, Limits{})
	start := f.ledger.Revision()
	for _, name := range []string{"a", "b", "c"} {
		f.AddNode(name, "1", "1Gi")
	}
	batch, ok := f.api.batchAfter(start)
	require.True(t, ok)
	assert.Len(t, regexpTime.FindAll(batch.line, -1), 1)
}

// As many times are kept as the journal has changes at least, and not many more.
func TestTimesAreBounded(t *testing.T) {
	var times times
	begin := time.Unix(1_000_000, 0)
	for r := range uint64(5 * maxMarks) {
		times.note(r, begin.Add(time.Duration(r)*time.Second))
		assert.LessOrEqual(t, len(times.marks), 2*maxMarks)
	}
	for r := uint64(4 * maxMarks); r < 5*maxMarks; r++ {
		require.Equal(t, begin.Add(time.Duration(r)*time.Second).UTC(), times.of(r))
	}
}

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
