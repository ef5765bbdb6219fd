//go:build e2e

package reservations

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The server says why a Reservation waits, among the refusals and among the reservations, until it has its capacity.
func TestPendingIsTold(t *testing.T) {
	c := newCluster(t).in(t, "pending")
	c.CreateReservation("r", `{ttl: 10m, slots: [{name: a, nodeName: pending-0, requests: {cpu: 2}}]}`)
	assert.Equal(t, "NodeUnknown", reason(c.AwaitReservation("r", v1alpha1.ReservationPending)))
	refusal := c.AwaitRefusal("path=object&namespace=pending")
	assert.Equal(t, []string{"pending/r/a", "NodeUnknown"}, []string{refusal.Reservation, refusal.Rejection.Reason})
	pending := func(t require.TestingT) *reserver.PendingReservation {
		var answer reserver.ReservationsAnswer
		require.NoError(t, c.Ledger.Get(c.T.Context(), testbed.ReservationsPath+"?namespace=pending", &answer))
		require.Len(t, answer.Reservations, 1)
		return answer.Reservations[0].Pending
	}
	c.Eventually(func(t *assert.CollectT) {
		if why := pending(t); assert.NotNil(t, why) {
			assert.Equal(t, "NodeUnknown", why.Reason)
		}
	})
	c.nodes(1)
	c.waitFor("r", v1alpha1.ConditionAvailable, metav1.ConditionTrue)
	c.Eventually(func(t *assert.CollectT) { assert.Nil(t, pending(t)) })
}
