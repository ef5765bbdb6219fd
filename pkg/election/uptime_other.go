//go:build !linux

package election

import "time"

// uptime is the time since the process began.
func uptime() time.Duration { return sinceStart() }
