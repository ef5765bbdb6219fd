//go:build chaos || soak

package dra

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// raceForDoubles races until a device has two owners, which shows that the race can be lost, and returns how long a
// race takes. What was allocated last stays, with the pods that have it.
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
