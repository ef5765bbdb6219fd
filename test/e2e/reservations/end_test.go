//go:build e2e

package reservations

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// finishedTTL is how long the server keeps ended objects here.
const finishedTTL = 20 * time.Second

// TestEnd is how Reservations come to their end, and what they do not get there by.
func TestEnd(t *testing.T) {
	c := newCluster(t, "--finished-reservation-ttl="+finishedTTL.String())
	c.CreateReservation("ended", `{slots: [{name: a, nodeName: none, requests: {nonsense: 1}}]}`)
	ended := c.AwaitReservation("ended", v1alpha1.ReservationFailed)
	for name, test := range map[string]func(*cluster){"expiry": expiry, "node-again": nodeMadeAgain, "bad": badObjects} {
		t.Run(name, func(t *testing.T) { test(c.in(t, name)) })
	}
	t.Run("finished objects go", func(t *testing.T) {
		finished := ended.Status.Conditions[slices.IndexFunc(ended.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == v1alpha1.ConditionFinished
		})].LastTransitionTime
		c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.ListReservations()) })
		assert.GreaterOrEqual(t, time.Since(finished.Time), finishedTTL)
	})
	require.Empty(t, c.Watcher.Violations())
}

// expiry: a ttl is extended, and when it is over the next in line has the capacity.
func expiry(c *cluster) {
	c.nodes(1)
	c.CreateReservation("r", `{ttl: 3s, slots: [{name: a, nodeName: expiry-0, requests: {cpu: 4}}]}`)
	first := c.AwaitReservation("r", v1alpha1.ReservationAvailable).Status.ExpiresAt
	c.CreateReservation("next", `{ttl: 10m, slots: [{name: a, nodeSelector: {pool: expiry}, requests: {cpu: 4}}]}`)
	assert.Equal(c.T, "NoNodeFits", reason(c.AwaitReservation("next", v1alpha1.ReservationPending)))

	require.NoError(c.T, c.patchTTL("r", "5s"))
	require.Error(c.T, c.patchTTL("r", "4s"), "never shorter")
	c.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, first.Add(2*time.Second), c.get("r").Status.ExpiresAt.Time)
	})
	end := first.Add(2 * time.Second)
	for time.Now().Before(end.Add(-testbed.Poll)) {
		require.Equal(c.T, v1alpha1.ReservationAvailable, c.get("r").Status.Phase, "at %s of %s", time.Now(), end)
		<-time.After(testbed.Poll)
	}
	c.waitFor("next", v1alpha1.ConditionAvailable, metav1.ConditionTrue)
	c.T.Logf("the next had the capacity %s after the end", time.Since(end).Round(time.Millisecond))
	assert.Less(c.T, time.Since(end), 2*time.Second)
	assert.Equal(c.T, end, c.AwaitReservation("r", v1alpha1.ReservationExpired).Status.ExpiresAt.Time)
	assert.Equal(c.T, "expiry-0|Expired|0/1", c.columns("r"))
}

// nodeMadeAgain: while the server is away, a node is deleted and another one gets its name.
func nodeMadeAgain(c *cluster) {
	nodes := c.nodes(1)
	c.CreateReservation("r", `{ttl: 10m, slots: [{name: a, nodeName: node-again-0, requests: {cpu: 4}}]}`)
	c.AwaitReservation("r", v1alpha1.ReservationAvailable)
	c.Server.KillAlone(c.T)
	c.DeleteNode(nodes[0])
	c.nodes(1)
	require.NoError(c.T, c.Server.Start(c.T.Context()))
	assert.Equal(c.T, "NodeGone", reason(c.AwaitReservation("r", v1alpha1.ReservationFailed)))
}
