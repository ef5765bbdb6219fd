package dra

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

var rounds = flag.Int("rounds", 3, "how often devices are raced for, with the webhook")

const (
	raceNodes, raceDevices = 10, 4 // per node
	racePods               = 60
	raceTotal              = raceNodes * raceDevices
)

// raceForDoubles races until a device has two owners, which shows that the race can be lost, and returns how long a race
// takes. What was allocated last stays, with the pods that have it.
func (c *cluster) raceForDoubles(t *testing.T, prefix string, schedulers []string) (took time.Duration) {
	t.Helper()
	for round := 0; len(c.verdict.doubled()) == 0; round++ {
		require.Less(t, round, 5, "no device was ever given twice: the verdict shows nothing")
		c.clear()
		took = c.race(fmt.Sprintf("%s-%d", prefix, round), racePods, schedulers, func(t *assert.CollectT) {
			for _, pod := range c.Pods() { // none waits while there is a device for it
				assert.True(t, pod.Spec.NodeName != "" || testbed.Refusal(&pod) != "" && c.verdict.taken() == raceTotal, pod.Name)
			}
		})
		c.clearWaiting()
		t.Logf("without the webhook: %d claims have devices after %v, %d of %d devices are taken, %d have two owners or more",
			len(c.allocated()), took.Round(time.Millisecond), c.verdict.taken(), raceTotal, len(c.verdict.doubled()))
	}
	return took
}

// Two kube-schedulers that know nothing of GlobalReserve race for the devices of ten nodes, first without the webhook and
// then with it.
func TestRace(t *testing.T) {
	c := newCluster(t, raceNodes, raceDevices)
	schedulers := []string{"first", "second"}
	for _, s := range schedulers {
		require.NoError(t, c.StartScheduler(t.Context(), s, nil))
	}
	without := c.raceForDoubles(t, "without", schedulers)
	c.clear()
	c.startWebhook()
	c.verdict.forget()
	testbed.Measure(t, 3, func(try assert.TestingT) {
		var times []time.Duration
		for round := range *rounds {
			took := c.race(fmt.Sprintf("with-%d", round), racePods, schedulers, func(t *assert.CollectT) {
				assert.Equal(t, raceTotal, c.verdict.taken())
				assert.Len(t, testbed.Bound(c.Pods()), raceTotal)
			})
			c.verdict.catchUp(t, c.Client())
			refused := c.Metric("globalreserve_decisions_total", "verb", "resourceclaims", "result", "refused")
			t.Logf("with the webhook: all %d devices taken, and as many pods bound, after %v; %d refused so far", raceTotal, took.Round(time.Millisecond), refused)
			require.Empty(t, c.verdict.doubles(1))
			require.Len(t, c.allocated(), raceTotal)
			times = append(times, took)
			c.clear()
		}
		slices.Sort(times)
		assert.LessOrEqual(try, times[len(times)/2], without*3/2+3*time.Second)
	})
	require.Zero(t, c.Metric("globalreserve_dra_double_devices"))
}
