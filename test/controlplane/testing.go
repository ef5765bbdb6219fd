package controlplane

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
)

// StartT starts a control plane for a test and stops it at the test's end. The logs of a test that
// failed are kept, and their directory is printed.
func StartT(t testing.TB, options Options) *ControlPlane {
	t.Helper()
	c, err := Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			c.KeepLogs()
			t.Logf("control plane logs: %s", c.LogDir())
		}
		assert.NoError(t, c.Stop(), "stop the control plane")
	})
	return c
}

// Never fails the test if the condition comes to hold within a time. It asks in the test's own
// goroutine, unlike require.Never, which may still be asking when the test has ended.
func Never(t testing.TB, condition func() bool, within, tick time.Duration, what ...any) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), tick, within, true,
		func(context.Context) (bool, error) { return condition(), nil })
	require.ErrorIs(t, err, context.DeadlineExceeded, what...)
}
