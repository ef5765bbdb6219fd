//go:build e2e

package gangs

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// A kube-scheduler that is told nothing of GlobalReserve sends a pod to a node that is kept for others. The pod is
// bound where its own capacity is, and the scheduler counts it there: the other node is empty for it again.
func TestKubeSchedulerCountsAPodWhereItWasRedirected(t *testing.T) {
	c := newCluster(t, 2, long)
	const slots = "{ttl: 1h, slots: [{name: a, nodeName: %s, requests: {cpu: %d}, pod: {name: %s}}]}"
	for i := range 3 {
		require.NoError(t, c.BindDirectly(c.CreatePod(fmt.Sprint("filler-", i), byHand, "1").Name, c.nodes[1]))
	}
	c.CreateReservation("kept", fmt.Sprintf(slots, c.nodes[0], nodeCPUs, "large"))
	c.CreateReservation("own", fmt.Sprintf(slots, c.nodes[1], 1, "small"))
	c.AwaitReservation("kept", v1alpha1.ReservationAvailable)
	c.AwaitReservation("own", v1alpha1.ReservationAvailable)
	require.NoError(t, c.StartScheduler(t.Context(), "unknowing", nil))

	c.CreatePod("small", "unknowing", "1")
	pod, _ := c.AwaitBound("small")
	assert.Equal(t, c.nodes[1], pod.Spec.NodeName)
	assert.Equal(t, c.nodes[0], pod.Annotations[v1alpha1.RedirectedFromAnnotation])
	c.CreatePod("large", "unknowing", fmt.Sprint(nodeCPUs))
	pod, _ = c.AwaitBound("large")
	assert.Equal(t, c.nodes[0], pod.Spec.NodeName)
	c.RequireNeverOvercommitted()
}

// A scheduler binds one pod of a gang and none after that. The server binds the rest, on nodes that others would like
// to have, and no more than the gang needs.
func TestServerBindsWhatASchedulerLeaves(t *testing.T) {
	const minimum = 8
	c := newCluster(t, 3, long)
	members := c.Create(testbed.NewPods(minimum+1, "gang", byHand, "1",
		testbed.Annotated(v1alpha1.GangAnnotation, "gang", v1alpha1.GangMinAnnotation, strconv.Itoa(minimum)))...)
	c.Eventually(func(t *assert.CollectT) { assert.NoError(t, c.BindDirectly(members[0].Name, c.nodes[0])) })
	c.startKubeScheduler()
	c.Create(testbed.NewPods(len(c.nodes)*nodeCPUs, "single", singles, "1")...)
	c.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, minimum-1, c.Metric("globalreserve_gang_bindings_total", "result", "bound"))
	})
	c.awaitFull()
	c.requireNothingKept()
	bound := 0
	for _, pod := range testbed.Bound(c.Pods()) {
		if pod.Spec.SchedulerName == byHand {
			bound++
		}
	}
	assert.Equal(t, minimum, bound)
	c.RequireNeverOvercommitted()
}
