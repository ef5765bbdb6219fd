//go:build !linux

package steady

import "time"

// Uptime is the time since the process began.
func Uptime() time.Duration { return sinceStart() }
