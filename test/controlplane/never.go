package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Never fails the test if the condition comes to hold within a time. It asks in the test's own
// goroutine, unlike require.Never, which may still be asking when the test has ended.
func Never(t testing.TB, condition func() bool, within, tick time.Duration, what ...any) {
	t.Helper()
	end := time.After(within)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		require.False(t, condition(), what...)
		select {
		case <-end:
			return
		case <-ticker.C:
		}
	}
}
