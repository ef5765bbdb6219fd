//go:build e2e

package deletedpods

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestMatching is about who may use reserved capacity.
func TestMatching(t *testing.T) {
	c := newCluster(t)
	c.startScheduler()
	c.CreatePriorityClass("high", 1000)
	t.Run("two namespaces, the same index", func(t *testing.T) { twoNamespaces(c, t) })
	t.Run("preemptible capacity", func(t *testing.T) { preemptible(c.in(t, "preemptible")) })
	t.Run("a pod that waits is sent there", func(t *testing.T) { waitingPod(c.in(t, "waiting")) })
	c.RequireNeverOvercommitted()
}

// Capacity kept in one namespace is no use to pods of another, whatever they call themselves.
func twoNamespaces(c *cluster, t *testing.T) {
	owner, thief := c.in(t, "owner"), c.in(t, "thief")
	owner.nodes(1)
	index := testbed.Pairs(v1alpha1.ReservationAnnotation, "true", v1alpha1.ReservationIndexAnnotation, "shared")
	owner.Create(owner.newPod("first", "3", index))
	first, _ := owner.AwaitBound("first")
	owner.Delete("first")
	owner.AwaitReservation("first", v1alpha1.ReservationAvailable)

	steals := thief.newPod("steals", "3", testbed.Pairs(
		v1alpha1.ReservationIndexAnnotation, "shared", v1alpha1.MatchedReservationAnnotation, "owner/first/deleted-pod"))
	steals.Spec.NodeSelector = map[string]string{"pool": "owner"}
	thief.Create(steals)
	thief.AwaitRefused("steals")
	controlplane.Never(t, func() bool { return thief.FindPod("steals").Spec.NodeName != "" }, testbed.Never, testbed.Poll)

	owner.Create(owner.newPod("back", "3", index))
	back, _ := owner.AwaitBound("back")
	require.Equal(t, first.Spec.NodeName, back.Spec.NodeName)
	require.Equal(t, "owner/first/deleted-pod", back.Annotations[ours])
	require.Empty(t, thief.FindPod("steals").Spec.NodeName)
}

// A pod of higher priority takes preemptible capacity where it fits nowhere else, all of the reservation's.
func preemptible(c *cluster) {
	t := c.T
	nodes := c.nodes(3)
	c.CreateReservation("spare", fmt.Sprintf(
		`{preemptible: true, priority: 0, ttl: 1h, slots: [{name: a, nodeName: %s, requests: {cpu: 4}}, {name: b, nodeName: %s, requests: {cpu: 4}}]}`,
		nodes[0], nodes[1]))
	c.AwaitReservation("spare", v1alpha1.ReservationAvailable)

	high := func(name string) *corev1.Pod {
		pod := c.newPod(name, "3", nil)
		pod.Spec.PriorityClassName = "high"
		return pod
	}
	c.Create(high("high-1"))
	pod, _ := c.AwaitBound("high-1")
	require.Equal(t, nodes[2], pod.Spec.NodeName, "there is capacity that nobody holds")
	c.Create(c.newPod("low", "3", nil))
	c.AwaitRefused("low")
	c.AwaitReservation("spare", v1alpha1.ReservationAvailable)

	// There is capacity on a node that the pod cannot be on: the server cannot know that at once.
	c.AddNodes(1, controlplane.NodeTemplate{Prefix: "of-others-"})
	started := time.Now()
	c.Create(high("high-2"))
	pod, at := c.AwaitBound("high-2")
	t.Logf("preempted after %s", at.Sub(started).Round(time.Millisecond))
	require.Contains(t, nodes[:2], pod.Spec.NodeName)
	ended := c.AwaitReservation("spare", v1alpha1.ReservationPreempted)
	for _, slot := range ended.Status.Slots {
		require.Equal(t, v1alpha1.SlotReleased, slot.State, slot.Name)
	}
	freed, _ := c.AwaitBound("low")
	require.Contains(t, nodes[:2], freed.Spec.NodeName, "the whole reservation has ended")
}

// A pod that was refused before there was capacity for it is sent to the capacity that is kept for it, at once; one
// that waits as long and has no right to it goes on waiting.
func waitingPod(c *cluster) {
	t := c.T
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
	for round := range 3 {
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
	c.CreateReservation("one", fmt.Sprintf(`{consumers: {index: one}, slots: [{name: a, nodeName: %s, requests: {cpu: 1, memory: 64Mi}}]}`, free))
	c.AwaitReservation("one", v1alpha1.ReservationAvailable)
	c.Create(c.newPod("one", "1", testbed.Pairs(v1alpha1.ReservationIndexAnnotation, "one")))
	pod, _ := c.AwaitBound("one")
	require.Equal(t, free, pod.Spec.NodeName)
	require.Equal(t, fmt.Sprintf("%s/one/a", c.Namespace), pod.Annotations[ours])
	c.RequireNeverOvercommitted()
}
