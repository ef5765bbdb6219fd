package steady

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is the time since the machine was started, the time it was suspended
// included: Go's own monotonic clock stands still then.
func Uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return sinceStart()
	}
	return time.Duration(now.Nano())
}
