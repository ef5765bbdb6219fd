package deletedpods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// The annotations of the Gödel scheduler's own walk-through.
const (
	godelReservation = "godel.bytedance.com/reservation"
	godelIndex       = "godel.bytedance.com/reservation-index"
	godelTTL         = "godel.bytedance.com/reservation-ttl"
	godelMatched     = "godel.bytedance.com/matched-reservation-placeholder"
	ours             = "globalreserve.io/matched-reservation"
)

// TestGodelWalkThrough goes through the workflow with the annotations of the Gödel scheduler.
func TestGodelWalkThrough(t *testing.T) {
	outer := clusterOn(t, &plain)
	outer.startScheduler()
	c := outer.in(t, "single")
	c.nodes(2)
	index := testbed.Pairs(godelReservation, "true", godelIndex, "walk-through", godelTTL, "600")
	reserved := c.newPod("reserved", "3", index)
	reserved.Spec.TerminationGracePeriodSeconds = new(int64) // there is no kubelet
	c.Create(reserved)
	before, _ := c.AwaitBound("reserved")
	node := before.Spec.NodeName
	c.Delete("reserved")

	// The placeholder is there, on the pod's node.
	rsv := c.AwaitReservation("reserved", v1alpha1.ReservationAvailable)
	columns := c.Columns("reserved")
	require.Equal(t, node, columns["NodeName"], "%v", columns)
	require.Equal(t, "Available", columns["Status"])
	require.Equal(t, "0/1", columns["Consumed"])
	require.Equal(t, &v1alpha1.ConsumerSpec{Index: "walk-through"}, rsv.Spec.Consumers)
	require.Equal(t, 10*time.Minute, rsv.Spec.TTL.Duration)

	// Others cannot take the capacity, although kube-scheduler sees it free.
	c.Create(c.newPod("other-a", "3", nil))
	other, _ := c.AwaitBound("other-a")
	require.NotEqual(t, node, other.Spec.NodeName)
	c.Create(c.newPod("other-b", "3", nil))
	c.AwaitRefused("other-b")
	refusal := c.FindPod("other-b").Status.Conditions[0].Message
	require.Contains(t, refusal, "GlobalReserve: not enough capacity left on the node", "the ledger alone refuses")
	controlplane.Never(t, func() bool { return c.FindPod("other-b").Spec.NodeName != "" }, testbed.Never, testbed.Poll)

	// The back pod lands there and says what it used.
	c.Create(c.newPod("back", "3", testbed.Pairs(godelReservation, "true", godelIndex, "walk-through")))
	back, _ := c.AwaitBound("back")
	require.Equal(t, node, back.Spec.NodeName)
	require.Equal(t, c.Namespace+"/reserved-placeholder", back.Annotations[godelMatched])
	require.Equal(t, c.Namespace+"/reserved/deleted-pod", back.Annotations[ours])
	c.awaitHeld(0, "what is used up goes")
	require.Empty(t, c.FindPod("other-b").Spec.NodeName)
	outer.RequireNeverOvercommitted()
}
