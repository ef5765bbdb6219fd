//go:build e2e

package deletedpods

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestWaitingPod: a pod that was refused before there was capacity for it is sent to the capacity that is kept for it;
// one that waits as long and has no right to it goes on waiting.
func TestWaitingPod(t *testing.T) {
	outer := newCluster(t)
	outer.startScheduler()
	c := outer.in(t, "waiting")
	nodes := c.nodes(2)
	c.CreateReservation("rest", fmt.Sprintf(`{slots: [{name: a, nodeName: %s, requests: {cpu: 4}}]}`, nodes[0]))
	c.AwaitReservation("rest", v1alpha1.ReservationAvailable)
	index := testbed.Pairs(v1alpha1.ReservationAnnotation, "true", v1alpha1.ReservationIndexAnnotation, "late")
	c.Create(c.newPod("goes", "4", index))
	c.AwaitBound("goes")
	c.Create(c.newPod("other", "3", nil))
	c.AwaitRefused("other")
	c.Create(c.newPod("waits", "3", index))
	c.AwaitRefused("waits")
	c.Delete("goes")
	pod, _ := c.AwaitBound("waits")
	require.Equal(t, nodes[1], pod.Spec.NodeName)
	require.Equal(t, c.Namespace+"/goes/deleted-pod", pod.Annotations[ours])
	require.Empty(t, c.FindPod("other").Spec.NodeName)
	c.RequireNeverOvercommitted()
}

// TestSteering has 500 nodes, of which kube-scheduler looks at a few for each pod. Every pod that comes
// back still finds the one node that is held for it.
func TestSteering(t *testing.T) {
	c := newCluster(t)
	c.startScheduler()
	c = c.in(t, "large")
	nodes := c.nodes(500)
	const replicas = 20
	// Every other Deployment is noise that moves kube-scheduler's sample along.
	c.deploy("web", replicas, "3", keep, nil)
	c.deploy("noise", 30, "100m", nil, nil)
	was := map[string]bool{}
	for _, pod := range c.podsOf("web") {
		was[pod.Spec.NodeName] = true
	}
	require.Len(t, was, replicas, "one on each node")
	for round := range 2 {
		c.scale("web", 0)
		c.Eventually(func(t *assert.CollectT) {
			assert.Empty(t, c.podsOf("web"))
			assert.Len(t, c.ListReservations(), replicas)
		})
		started := time.Now()
		c.scale("web", replicas)
		pods := c.awaitPods("web", replicas)
		t.Logf("round %d: %d pods back after %s", round, len(pods), time.Since(started).Round(time.Millisecond))
		require.Len(t, testbed.Matched(pods), replicas, "%v", testbed.Matched(pods))
		for i := range pods {
			require.True(t, was[pods[i].Spec.NodeName], "%s is on %s, which was not held", pods[i].Name, pods[i].Spec.NodeName)
		}
		c.awaitHeld(0)
	}
	// A single pod, and the nomination that brought it there.
	used := map[string]bool{}
	for _, pod := range c.Pods() {
		used[pod.Spec.NodeName] = true
	}
	free := nodes[slices.IndexFunc(nodes, func(node string) bool { return !used[node] })]
	c.CreateReservation("one",
		fmt.Sprintf(`{consumers: {index: one}, slots: [{name: a, nodeName: %s, requests: {cpu: 1, memory: 64Mi}}]}`, free))
	c.AwaitReservation("one", v1alpha1.ReservationAvailable)
	c.Create(c.newPod("one", "1", testbed.Pairs(v1alpha1.ReservationIndexAnnotation, "one")))
	pod, _ := c.AwaitBound("one")
	require.Equal(t, free, pod.Spec.NodeName)
	require.Equal(t, fmt.Sprintf("%s/one/a", c.Namespace), pod.Annotations[ours])
	c.RequireNeverOvercommitted()
}
