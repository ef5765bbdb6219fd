package deletedpods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// serverTTL is the server's --reservation-ttl in these tests.
const serverTTL = 10 * time.Minute

func TestTTL(t *testing.T) {
	c := newCluster(t, "--reservation-ttl="+serverTTL.String())
	c.startScheduler()
	t.Run("which one counts", func(t *testing.T) { ttlPrecedence(c.in(t, "precedence")) })
	t.Run("a waiting pod gets the capacity", func(t *testing.T) {
		for _, namespace := range []string{"first", "second", "third"} {
			t.Run(namespace, func(t *testing.T) {
				t.Parallel() // each waits for its ttl to end
				capacityAfterTTL(c.in(t, namespace))
			})
		}
	})
	c.RequireNeverOvercommitted()
}

// The pod's annotation stands above the Deployment's, that above the server's flag.
func ttlPrecedence(c *cluster) {
	c.nodes(1)
	const podTTL = v1alpha1.ReservationTTLAnnotation
	deployments := map[string]struct {
		own, ofPods map[string]string
		want        time.Duration
		event       bool
	}{
		"flag":       {own: keep, want: serverTTL},
		"deployment": {own: testbed.Pairs(v1alpha1.ReservationAnnotation, "true", podTTL, "1h"), want: time.Hour},
		"pod":        {own: testbed.Pairs(v1alpha1.ReservationAnnotation, "true", podTTL, "1h"), ofPods: testbed.Pairs(podTTL, "90"), want: 90 * time.Second},
		"pod-godel":  {own: testbed.Pairs(godelReservation, "true", godelTTL, "120"), ofPods: testbed.Pairs(godelTTL, "7m"), want: 7 * time.Minute},
		"bad-pod":    {own: testbed.Pairs(v1alpha1.ReservationAnnotation, "true", podTTL, "1h"), ofPods: testbed.Pairs(podTTL, "soon"), want: time.Hour, event: true},
		"all-bad":    {own: testbed.Pairs(v1alpha1.ReservationAnnotation, "true", podTTL, "-1"), ofPods: testbed.Pairs(podTTL, "1000h"), want: serverTTL, event: true},
	}
	for name, d := range deployments {
		c.deploy(name, 1, "100m", d.own, d.ofPods)
	}
	names := map[string]string{}
	for name := range deployments {
		names[name] = c.podsOf(name)[0].Name
		c.scale(name, 0)
	}
	for name, d := range deployments {
		c.T.(*testing.T).Run(name, func(t *testing.T) {
			rsv := c.AwaitReservation(names[name], v1alpha1.ReservationAvailable)
			require.Equal(t, d.want, rsv.Spec.TTL.Duration)
			require.NotNil(t, rsv.Status.ExpiresAt)
			require.InDelta(t, d.want.Seconds(), rsv.Status.ExpiresAt.Sub(rsv.CreationTimestamp.Time).Seconds(), 1)
			if !d.event {
				return
			}
			c.Eventually(func(t *assert.CollectT) {
				assert.NotEmpty(t, c.Notes("Pod", names[name], "InvalidReservationTTL"), "no event tells of the bad ttl")
			})
		})
	}
}

// After the ttl the capacity is everybody's, and who waits for it has it soon.
func capacityAfterTTL(c *cluster) {
	t := c.T
	c.nodes(1)
	c.Create(c.newPod("goes", "4", testbed.Pairs(v1alpha1.ReservationAnnotation, "true", v1alpha1.ReservationTTLAnnotation, "20s")))
	c.AwaitBound("goes")
	c.Delete("goes")
	rsv := c.AwaitReservation("goes", v1alpha1.ReservationAvailable)
	c.Create(c.newPod("waits", "4", nil))
	c.AwaitRefused("waits")
	_, at := c.AwaitBound("waits")
	late := at.Sub(rsv.Status.ExpiresAt.Time)
	t.Logf("bound %s after the capacity was free", late.Round(time.Millisecond))
	require.Positive(t, late, "it did not wait")
	require.Less(t, late, testbed.WakeWithin)
	c.awaitHeld(0)
}
