//go:build e2e

package deletedpods

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestExamples goes through examples/reservations/README.md, on the three nodes it speaks of.
func TestExamples(t *testing.T) {
	c := newCluster(t)
	c.startScheduler()
	c.AddNodes(3, controlplane.NodeTemplate{})
	c.AwaitUntainted("")
	for _, example := range []struct {
		name string
		walk func(*cluster)
	}{
		{"a single pod", examplePod},
		{"a Deployment", exampleDeployment},
		{"a gang", exampleGang},
		{"a gang, ahead", exampleGangAhead},
		{"a capacity buffer", exampleBuffer},
	} {
		t.Run(example.name, func(t *testing.T) {
			inner := *c
			inner.T = t
			example.walk(&inner)
		})
	}
	c.RequireNeverOvercommitted()
}

// apply creates the object of a file of the examples; the function it returns deletes it.
func (c *cluster) apply(file string) (remove func()) {
	c.T.Helper()
	return c.ApplyFile("examples", "reservations", file)
}

// awaitEmpty waits until an example has left nothing behind.
func (c *cluster) awaitEmpty() {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		assert.Empty(t, c.Pods())
		assert.Empty(t, c.ListReservations())
	})
}

func examplePod(c *cluster) {
	c.apply("pod.yaml")
	was, _ := c.AwaitBound("trainer")
	c.Delete("trainer")
	c.AwaitReservation("trainer", v1alpha1.ReservationAvailable)
	require.Equal(c.T, was.Spec.NodeName, c.Columns("trainer")["NodeName"])
	c.apply("pod-back.yaml")
	back, _ := c.AwaitBound("trainer-again")
	require.Equal(c.T, was.Spec.NodeName, back.Spec.NodeName)
	require.Equal(c.T, "default/trainer/deleted-pod", back.Annotations[ours])
	c.Delete("trainer-again")
	c.awaitEmpty()
}

func exampleDeployment(c *cluster) {
	remove := c.apply("deployment.yaml")
	c.awaitPods("web", 3)
	c.scale("web", 0)
	c.awaitHeld(3)
	c.scale("web", 5)
	require.Len(c.T, testbed.Matched(c.awaitPods("web", 5)), 3)
	remove()
	c.awaitEmpty() // the Deployment that asked is gone, and nobody is left to use the capacity
}

func exampleGang(c *cluster) {
	removeCapacity := c.apply("gang.yaml")
	c.AwaitReservation("training", v1alpha1.ReservationAvailable)
	require.Equal(c.T, "0/3", c.Columns("training")["Consumed"])
	removePods := c.apply("gang-pods.yaml")
	c.AwaitReservation("training", v1alpha1.ReservationSucceeded)
	require.Len(c.T, testbed.Matched(c.Pods()), 3)
	removePods()
	removeCapacity()
	c.awaitEmpty()
}

// exampleGangAhead fills the rest of each node, so that nothing but the reserved capacity is left for the gang.
func exampleGangAhead(c *cluster) {
	removeCapacity := c.apply("gang-ahead.yaml")
	rsv := c.AwaitReservation("ring-capacity", v1alpha1.ReservationAvailable)
	for _, slot := range rsv.Status.Slots {
		filler := c.CreatePod("filler-"+slot.NodeName, testbed.Nobody, "1")
		require.Empty(c.T, c.Bind(filler, slot.NodeName))
		other := c.CreatePod("other-"+slot.NodeName, testbed.Nobody, "1")
		require.Contains(c.T, c.Bind(other, slot.NodeName), "default/ring-capacity/", "for the gang alone")
	}
	removePods := c.apply("gang-ahead-pods.yaml")
	rsv = c.AwaitReservation("ring-capacity", v1alpha1.ReservationSucceeded)
	require.Equal(c.T, "3/3", rsv.Status.Consumed)
	require.ElementsMatch(c.T, []string{
		"default/ring-capacity/member-0", "default/ring-capacity/member-1",
		"default/ring-capacity/member-2",
	},
		slices.Collect(maps.Values(testbed.Matched(c.Pods()))))
	removePods()
	removeCapacity()
	require.NoError(c.T, clusterload.DeletePods(c.T.Context(), c.Client(), c.Namespace))
	c.awaitEmpty()
}

func exampleBuffer(c *cluster) {
	removeBuffer := c.apply("buffer.yaml")
	buffer := c.AwaitReservation("buffer", v1alpha1.ReservationAvailable)
	require.Nil(c.T, buffer.Status.ExpiresAt)
	removeLoad := c.apply("buffer-load.yaml")
	c.awaitPods("load", 4)
	c.AwaitReservation("buffer", v1alpha1.ReservationAvailable)
	c.scale("load", 5)
	c.awaitPods("load", 5)
	c.AwaitReservation("buffer", v1alpha1.ReservationPreempted)
	removeLoad()
	removeBuffer()
	c.awaitEmpty()
}
