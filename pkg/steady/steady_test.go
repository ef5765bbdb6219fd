package steady

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestClock(t *testing.T) {
	for _, step := range []time.Duration{0, 700 * time.Millisecond, time.Hour, -time.Hour, 3*time.Hour +
		1500*time.Millisecond} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, stepped := time.Now(), time.Duration(0)
				c := New(func() time.Time { return time.Now().Add(stepped) }, Uptime)
				assert.Equal(t, begun, c.Now())
				at := begun.Add(time.Minute)
				assert.Equal(t, at, c.At(at), "the clocks show the same")
				assert.Equal(t, at, c.WallAt(at))
				stepped = step
				<-time.After(10 * time.Second)

				assert.Equal(t, begun.Add(10*time.Second), c.Now(), "a step does not move it")
				assert.Equal(t, begun.Add(10*time.Second+step), c.Wall())
				assert.WithinDuration(t, at.Add(step), c.WallAt(at), time.Second)
				assert.WithinDuration(t, at, c.At(at.Add(step)), time.Second)
				assert.Equal(t, at, c.At(c.WallAt(at)), "there and back")
				assert.Zero(t, c.At(time.Time{}))
				assert.Zero(t, c.WallAt(time.Time{}))
				shown := c.WallAt(at)
				<-time.After(time.Hour)
				assert.Equal(t, shown, c.WallAt(at), "it is shown alike each time")
			})
		})
	}
}

// A process that is paused between its looks at the two clocks takes that for no step.
func TestPauseBetweenTheClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pauses := 1
		c := New(func() time.Time {
			shown := time.Now()
			for ; pauses > 0; pauses-- {
				<-time.After(time.Hour)
			}
			return shown
		}, Uptime)
		assert.Equal(t, time.Now(), c.Now(), "when it was made")
		at := time.Now().Add(time.Minute)
		pauses = 1
		assert.Equal(t, at, c.At(at))
		assert.Equal(t, at, c.WallAt(at))
	})
}

// The API server's clock may be another one: what it wrote just now lasts for its ttl.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, stepped := time.Now(), time.Duration(0)
		c := New(func() time.Time { return time.Now().Add(stepped) }, Uptime)
		ends := begun.Add(time.Minute - time.Second)
		assert.Equal(t, ends, c.Ends(ends, time.Minute), "as the object says")
		for _, stepped = range []time.Duration{time.Hour, -time.Hour} {
			assert.Equal(t, begun.Add(time.Minute), c.Ends(ends, time.Minute), stepped)
			assert.Equal(t, ends, c.Ends(ends.Add(stepped), time.Minute), "its clock was stepped, too")
		}
		assert.Zero(t, c.Ends(time.Time{}, time.Minute))
	})
}
