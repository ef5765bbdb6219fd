//go:build e2e

package reservations

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// Large Reservations of one namespace, which wait for capacity, do not keep that of another one waiting. With 100 of
// 1,000 slots on 1,000 nodes, and without turns, it waits for 10 s and more.
func TestPendingOfOneNamespace(t *testing.T) {
	const large, slots, nodes = 100, 1000, 1000
	c := newCluster(t).in(t, "many")
	names := c.nodes(nodes)
	require.Empty(t, c.Bind(c.createPod("blocker", "2", ""), names[0])) // the last slot fits nowhere
	var spec strings.Builder
	spec.WriteString("{ttl: 10m, slots: [")
	for i := range slots {
		fmt.Fprintf(&spec, "{name: s%d, requests: {cpu: 3}},", i)
	}
	spec.WriteString("]}")
	for i := range large {
		c.CreateReservation(fmt.Sprint("large-", i), spec.String())
	}
	other, made := c.in(t, "one"), 0
	testbed.Measure(t, 3, func(t assert.TestingT) {
		begun := time.Now()
		name := fmt.Sprint("small-", made)
		made++
		other.CreateReservation(name, "{ttl: 10m, slots: [{name: a, requests: {cpu: 100m}}]}")
		other.waitFor(name, v1alpha1.ConditionAvailable, metav1.ConditionTrue)
		took := time.Since(begun)
		c.T.Logf("kept after %v", took)
		assert.Less(t, took, 4*time.Second)
	})
}
