//go:build soak

package dra

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// Two kube-schedulers fill all devices nearly as soon with the webhook as without it.
func TestTheWebhookIsInNobodysWay(t *testing.T) {
	c := newCluster(t, raceNodes, raceDevices)
	schedulers := []string{"first", "second"}
	for _, s := range schedulers {
		require.NoError(t, c.StartScheduler(t.Context(), s, nil))
	}
	without := c.raceForDoubles(t, "without", schedulers)
	c.clear()
	c.startWebhook()
	c.verdict.forget()
	try := 0
	testbed.Measure(t, 3, func(found assert.TestingT) {
		var times []time.Duration
		for round := range *rounds {
			times = append(times, c.raceOnce(t, fmt.Sprintf("with-%d-%d", try, round), schedulers))
			c.clear()
		}
		try++
		slices.Sort(times)
		assert.LessOrEqual(found, times[len(times)/2], without*3/2+3*time.Second)
	})
}
