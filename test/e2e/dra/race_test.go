//go:build e2e

package dra

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two kube-schedulers that know nothing of GlobalReserve race for the devices of ten nodes, with the webhook. That the
// race can be lost without it is in slower_test.go.
func TestRace(t *testing.T) {
	c := newCluster(t, raceNodes, raceDevices)
	schedulers := []string{"first", "second"}
	for _, s := range schedulers {
		require.NoError(t, c.StartScheduler(t.Context(), s, nil))
	}
	c.startWebhook()
	c.verdict.forget()
	for round := range *rounds {
		c.raceOnce(t, fmt.Sprintf("round-%d", round), schedulers)
		c.clear()
	}
	require.Zero(t, c.Metric("globalreserve_dra_double_devices"))
}
