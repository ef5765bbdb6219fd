// Package steady is the clock that deadlines run on. A step of the wall clock does not move it.
//
// There are two kinds of moments, both of type time.Time. Moments that the ledger and decisions compare are of the
// steady clock. Moments that are written in objects and answers are of the wall clock. A moment is turned into the
// other kind where it crosses that border: when an object is read or written, or a request is answered.
//
// What may be touched: no other package reads the wall clock to decide anything.
package steady

import (
	"sync/atomic"
	"time"
)

// tolerance is how far two clocks may differ and still count as one. Objects have whole seconds.
const tolerance = 2 * time.Second

// atOnce is how far apart in time two clocks may be read to be compared: the time between counts as a difference.
const atOnce = 100 * time.Millisecond

// looks is how often that is tried.
const looks = 100

// Clock is both clocks. It is safe for concurrent use.
type Clock struct {
	wall   func() time.Time
	uptime func() time.Duration
	// origin is what the wall clock showed when the Clock was made, and begun that moment.
	origin, begun time.Time
	// ahead is by how much the wall clock has been stepped since, in whole seconds. So moments are the same
	// on both clocks, to the nanosecond, while there is no step.
	ahead atomic.Int64
}

// Process is the Clock of this process.
var Process = New(time.Now, Uptime)

// New makes a Clock that shows what a wall clock shows now. uptime is what Uptime returns.
func New(wall func() time.Time, uptime func() time.Duration) *Clock {
	origin, begun := look(wall)
	return &Clock{wall: wall, uptime: uptime, origin: origin, begun: begun}
}

// look reads a wall clock and returns the moment of that, too. It reads again, not for ever, where the process was
// paused meanwhile.
func look(wall func() time.Time) (shown, at time.Time) {
	for range looks {
		at = time.Now()
		if shown = wall().Round(0); time.Since(at) < atOnce {
			break
		}
	}
	return shown, at
}

// Now returns the time of the steady clock.
func (c *Clock) Now() time.Time { return c.origin.Add(time.Since(c.begun)) }

// Uptime is the time since a moment that stays the same: it goes on while the machine is suspended, when Now stands
// still.
func (c *Clock) Uptime() time.Duration { return c.uptime() }

// Wall returns the time of the wall clock.
func (c *Clock) Wall() time.Time { return c.wall().Round(0) }

// At returns when the wall clock, as it runs now, shows a moment. Zero stays zero.
func (c *Clock) At(wall time.Time) time.Time {
	if wall.IsZero() {
		return wall
	}
	return wall.Add(-c.stepped())
}

// WallAt returns what the wall clock, as it runs now, shows at a moment. Zero stays zero.
func (c *Clock) WallAt(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(c.stepped())
}

// Ends returns when an object that the API server wrote just now ends. The object ends at a moment of the wall clock,
// ttl after it was written. Where the API server's clock differs from this one's, ttl counts. Zero stays zero.
func (c *Clock) Ends(wall time.Time, ttl time.Duration) time.Time {
	said, counted := c.At(wall), c.Now().Add(ttl)
	if said.IsZero() || said.Sub(counted).Abs() <= tolerance {
		return said
	}
	return counted
}

// stepped returns by how much the wall clock is ahead.
func (c *Clock) stepped() time.Duration {
	known := time.Duration(c.ahead.Load())
	shown, at := look(c.wall)
	if ahead := shown.Sub(c.origin) - at.Sub(c.begun); (ahead - known).Abs() >= time.Second {
		known = ahead.Round(time.Second)
		c.ahead.Store(int64(known))
	}
	return known
}
