//go:build e2e

package gangs

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// A scheduler sends all pods of a gang to one node, each of them once. Those that the node has no capacity for are
// bound where it is kept for them, and others find the gang whole.
func TestBindingsGoWhereCapacityIsKept(t *testing.T) {
	c := newCluster(t, 3, long)
	g := c.createGang("gang", 8)
	c.bindSoon(g.members[0])
	c.fillWithSingles()
	c.awaitKept(len(g.members))
	redirected := 0
	for _, name := range g.members[1:] {
		if err := c.bindNow(t.Context(), name, c.nodes[0]); err != nil { // the server was faster, on a slow machine
			require.NotContains(t, err.Error(), "too little cpu")
		}
		pod, _ := c.AwaitBound(name)
		if from, ok := pod.Annotations[v1alpha1.RedirectedFromAnnotation]; ok {
			redirected++
			assert.Equal(t, c.nodes[0], from)
			c.AwaitEvent("Pod", name, "BindingRedirected", pod.Spec.NodeName)
		}
	}
	own := c.Metric("globalreserve_gang_bindings_total", "result", "bound")
	assert.GreaterOrEqual(t, redirected+own, len(g.members)-nodeCPUs)
	assert.Equal(t, redirected, c.Metric("globalreserve_redirected_bindings_total", "scheduler", byHand))
	c.requireWhole(g)
	c.awaitFull()
	c.requireNothingKept()
	c.RequireNeverOvercommitted()
}

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
	c := newCluster(t, 3, long)
	g := &gang{name: "gang", minimum: 8}
	for i := range g.minimum + 1 {
		g.members = append(g.members, fmt.Sprint("gang-", i))
	}
	c.createMembers(g, g.members...)
	c.bindSoon(g.members[0])
	c.fillWithSingles()
	c.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, g.minimum-1, c.Metric("globalreserve_gang_bindings_total", "result", "bound"))
	})
	c.awaitFull()
	c.requireNothingKept()
	bound := 0
	for _, name := range g.members {
		if c.Pod(name).Spec.NodeName != "" {
			bound++
		}
	}
	assert.Equal(t, g.minimum, bound)
	c.RequireNeverOvercommitted()
}
