package controlplane

import (
	"testing"
)

// StartT starts a control plane for a test and stops it at the test's end. The logs of a test that
// failed are kept, and their directory is printed.
func StartT(t testing.TB, options Options) *ControlPlane {
	t.Helper()
	c, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.KeepLogs()
			t.Logf("control plane logs: %s", c.LogDir())
		}
		if err := c.Stop(); err != nil {
			t.Errorf("stop the control plane: %v", err)
		}
	})
	return c
}
