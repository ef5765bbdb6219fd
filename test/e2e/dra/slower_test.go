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
	without := c.raceForDoubles(t, schedulers)
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

// raceForDoubles races without the webhook until a device has two owners, which shows that the race can be lost, and
// returns how long a race takes.
func (c *cluster) raceForDoubles(t *testing.T, schedulers []string) (took time.Duration) {
	t.Helper()
	for round := 0; len(c.verdict.doubles()) == 0; round++ {
		require.Less(t, round, 5, "no device was ever given twice: the verdict shows nothing")
		took = c.race(fmt.Sprintf("without-%d", round), racePods, schedulers, func(t *assert.CollectT) {
			for _, pod := range c.Pods() { // none waits while there is a device for it
				assert.True(t, pod.Spec.NodeName != "" || testbed.Refusal(&pod) != "" && c.verdict.taken() == raceTotal, pod.Name)
			}
		})
		t.Logf("without the webhook: %d claims have devices after %v, %d of %d devices are taken, %d have had two owners",
			len(c.allocated()), took.Round(time.Millisecond), c.verdict.taken(), raceTotal, len(c.verdict.doubles()))
		c.clear()
	}
	return took
}
