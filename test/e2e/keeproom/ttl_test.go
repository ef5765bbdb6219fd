package keeproom

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// serverTTL is the server's --reservation-ttl in these tests.
const serverTTL = 4 * time.Second

func TestTTL(t *testing.T) {
	c := newCluster(t, "--reservation-ttl="+serverTTL.String())
	c.startScheduler(nil)
	t.Run("which one counts", func(t *testing.T) { ttlPrecedence(c.in(t, "precedence")) })
	t.Run("a waiting pod gets the room", func(t *testing.T) { roomAfterTTL(c.in(t, "expiry")) })
	c.requireNeverOvercommitted()
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
		"deployment": {own: annotations(v1alpha1.ReservationAnnotation, "true", podTTL, "1h"), want: time.Hour},
		"pod":        {own: annotations(v1alpha1.ReservationAnnotation, "true", podTTL, "1h"), ofPods: annotations(podTTL, "90"), want: 90 * time.Second},
		"pod-godel":  {own: annotations(godelReservation, "true", godelTTL, "120"), ofPods: annotations(godelTTL, "7m"), want: 7 * time.Minute},
		"bad-pod":    {own: annotations(v1alpha1.ReservationAnnotation, "true", podTTL, "1h"), ofPods: annotations(podTTL, "soon"), want: time.Hour, event: true},
		"all-bad":    {own: annotations(v1alpha1.ReservationAnnotation, "true", podTTL, "-1"), ofPods: annotations(podTTL, "1000h"), want: serverTTL, event: true},
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
		c.t.Run(name, func(t *testing.T) {
			rsv := c.awaitReservation(names[name], v1alpha1.ReservationAvailable)
			require.Equal(t, d.want, rsv.Spec.TTL.Duration)
			require.NotNil(t, rsv.Status.ExpiresAt)
			require.InDelta(t, d.want.Seconds(), rsv.Status.ExpiresAt.Sub(rsv.CreationTimestamp.Time).Seconds(), 1)
			if !d.event {
				return
			}
			c.eventually(soon, func(t *assert.CollectT) {
				list, err := c.Client().EventsV1().Events(c.namespace).List(c.t.Context(), metav1.ListOptions{FieldSelector: "reason=InvalidReservationTTL"})
				require.NoError(t, err)
				found := false
				for i := range list.Items {
					found = found || list.Items[i].Regarding.Name == names[name]
				}
				assert.True(t, found, "no event tells of the bad ttl")
			})
		})
	}
}

// After the ttl the room is everybody's, and who waits for it has it within two seconds.
func roomAfterTTL(c *cluster) {
	t := c.t
	c.nodes(1)
	for _, name := range []string{"first", "second", "third"} {
		c.create(c.newPod(name, "4", annotations(v1alpha1.ReservationAnnotation, "true", v1alpha1.ReservationIndexAnnotation, name)))
		c.awaitBound(name)
		c.delete(name)
		rsv := c.awaitReservation(name, v1alpha1.ReservationAvailable)
		c.create(c.newPod("waiting-for-"+name, "4", nil))
		c.awaitRefused("waiting-for-" + name)
		_, at := c.awaitBound("waiting-for-" + name)
		late := at.Sub(rsv.Status.ExpiresAt.Time)
		t.Logf("bound %s after the room was free", late.Round(time.Millisecond))
		require.Positive(t, late, "it did not wait")
		require.Less(t, late, wakeWithin)
		c.eventually(soon, func(t *assert.CollectT) { assert.Empty(t, c.list()) })
		c.delete("waiting-for-" + name)
	}
}
