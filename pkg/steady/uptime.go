package steady

import "time"

var start = time.Now()

// sinceStart is the time since the process began, by Go's monotonic clock.
func sinceStart() time.Duration { return time.Since(start) }
