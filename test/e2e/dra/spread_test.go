//go:build chaos

package dra

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// Devices have two owners when the webhook is installed. Their pods end side by side, in any order, while others wait:
// kube-scheduler takes a device for free when one of the two ends, and nobody is given it until both have ended.
func TestDoublesDoNotSpread(t *testing.T) {
	const waiting = 20
	c := newCluster(t, raceNodes, raceDevices)
	schedulers := []string{"first", "second"}
	for _, s := range schedulers {
		require.NoError(t, c.StartScheduler(t.Context(), s, nil))
	}
	c.raceForDoubles(t, "before", schedulers)
	before := c.allocated()
	c.startWebhook()
	doubled := c.verdict.doubled()
	c.Eventually(func(t *assert.CollectT) {
		assert.Len(t, doubled, c.Metric("globalreserve_dra_double_devices"))
		assert.Len(t, c.Notes("ResourceClaim", doubled[0], "DeviceAllocatedTwice"), 1)
	})
	c.verdict.forget()

	var waiters []string
	for i := range waiting {
		waiters = append(waiters, "waiter-"+string(rune('a'+i)))
	}
	c.createClaims(waiters...)
	for i, name := range waiters {
		c.Create(newPod(name, schedulers[i%2], name))
	}
	pods := c.Client().CoreV1().Pods(namespace)
	c.each(len(before), func(ctx context.Context, i int) error {
		if err := pods.Delete(ctx, before[i].Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return c.release(ctx, before[i].Name)
	})
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, testbed.Bound(c.Pods()), waiting) })
	c.verdict.catchUp(t, c.Client())
	require.Empty(t, c.verdict.joins())
	c.Eventually(func(t *assert.CollectT) { assert.Zero(t, c.Metric("globalreserve_dra_double_devices")) })
}
