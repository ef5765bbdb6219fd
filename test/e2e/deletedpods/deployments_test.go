//go:build e2e

package deletedpods

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestGodelWalkThroughOfDeployments is the same with Deployments, whose pods need no index.
func TestGodelWalkThroughOfDeployments(t *testing.T) {
	c := newCluster(t)
	c.startScheduler()
	t.Run("a Deployment", func(t *testing.T) { walkThroughDeployment(c.in(t, "deployed")) })
	t.Run("the back pod prefers its node", func(t *testing.T) { backPodPrefers(c.in(t, "prefers")) })
	c.RequireNeverOvercommitted()
}

func walkThroughDeployment(c *cluster) {
	t := c.T
	nodes := c.nodes(4)
	c.deploy("web", 3, "3", testbed.Pairs(godelReservation, "true", godelTTL, "10m"), nil)
	var was []string
	for _, pod := range c.podsOf("web") {
		was = append(was, pod.Spec.NodeName)
	}
	c.scale("web", 0)
	c.Eventually(func(t *assert.CollectT) {
		list := c.ListReservations()
		assert.Len(t, list, 3)
		for i := range list {
			assert.Equal(t, v1alpha1.ReservationAvailable, list[i].Status.Phase)
			assert.Contains(t, was, list[i].Status.NodeName)
			assert.Equal(t, &v1alpha1.ConsumerSpec{Controller: &v1alpha1.ControllerReference{Kind: "Deployment", Name: "web"}}, list[i].Spec.Consumers)
		}
	})
	// There is capacity for one pod of another kind only.
	c.Create(c.newPod("other-a", "3", nil), c.newPod("other-b", "3", nil))
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, testbed.Bound(c.Pods()), 1) })
	for _, pod := range testbed.Bound(c.Pods()) {
		require.NotContains(t, was, pod.Spec.NodeName)
	}
	require.NoError(t, c.Client().CoreV1().Pods(c.Namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "!app"}))
	c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.Pods()) })

	// Two more than there were: one has free capacity, and one has none.
	c.scale("web", 5)
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, testbed.Bound(c.podsOf("web")), 4) })
	pods := c.podsOf("web")
	require.Len(t, testbed.Matched(pods), 3, "%v", testbed.Matched(pods))
	used := map[string]bool{}
	for _, pod := range testbed.Bound(pods) {
		with := pod.Annotations[ours]
		require.Equal(t, with != "", pod.Annotations[godelMatched] != "", "pods of an annotated Deployment say it in Gödel's words, too")
		if with == "" {
			require.NotContains(t, was, pod.Spec.NodeName)
			require.Contains(t, nodes, pod.Spec.NodeName)
			continue
		}
		require.Contains(t, was, pod.Spec.NodeName)
		require.True(t, strings.HasSuffix(with, "/deleted-pod"), with)
		require.False(t, used[with], "%s was used twice", with)
		used[with] = true
	}
	c.awaitHeld(0)
}

// With free capacity everywhere, back pods go where capacity is held for them, all at once and each to its own.
func backPodPrefers(c *cluster) {
	t := c.T
	c.nodes(12)
	c.deploy("web", 6, "1", testbed.Pairs(v1alpha1.ReservationAnnotation, "true"), nil)
	for round := range 3 {
		c.scale("web", 0)
		c.Eventually(func(t *assert.CollectT) {
			assert.Empty(t, c.Pods())
			assert.Len(t, c.ListReservations(), 6)
		})
		c.scale("web", 8)
		pods := c.awaitPods("web", 8)
		require.Len(t, testbed.Matched(pods), 6, "round %d: %v", round, testbed.Matched(pods))
		for i := range pods {
			require.Empty(t, pods[i].Annotations[godelMatched], "nobody spoke Gödel's words")
		}
		c.awaitHeld(0)
		c.scale("web", 6)
		c.Eventually(func(t *assert.CollectT) {
			assert.Len(t, c.podsOf("web"), 6)
			assert.Len(t, c.ListReservations(), 2, "two pods went, and their capacity is kept")
		})
		for _, rsv := range c.ListReservations() {
			require.NoError(t, c.Reservations().Delete(t.Context(), rsv.Name, metav1.DeleteOptions{}))
		}
	}
}
