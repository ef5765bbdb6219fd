//go:build e2e

package deletedpods

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

var keep = testbed.Pairs(v1alpha1.ReservationAnnotation, "true")

// TestControllers runs controllers whose pods go and come back.
func TestControllers(t *testing.T) {
	c := newCluster(t)
	c.startScheduler()
	tests := map[string]func(*cluster){
		"rolling-update":     rollingUpdate,
		"stateful-set":       statefulSet,
		"finished":           finishedPods,
		"kept-for-a-time":    keptForATime,
		"evicted-for-others": preemptedPods,
	}
	t.Run("side by side", func(t *testing.T) { // each in a namespace and on nodes of its own
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(c.in(t, name))
			})
		}
	})
	c.RequireNeverOvercommitted()
}

// On nodes that are full, the new pods of a rolling update have capacity only where the old ones were.
func rollingUpdate(c *cluster) {
	t := c.T
	c.nodes(2)
	c.deploy("web", 2, "3", keep, nil)
	c.fill(2, "rest", "1")
	c.Create(c.newPod("vulture", "3", nil)) // waits for any capacity that becomes free
	c.AwaitRefused("vulture")
	for round := range 3 {
		c.patchDeployment("web", fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}}}}}`, round))
		c.Eventually(func(t *assert.CollectT) {
			pods := c.podsOf("web")
			assert.Len(t, testbed.Bound(pods), 2)
			for i := range pods {
				assert.Equal(t, strconv.Itoa(round), pods[i].Annotations["round"])
			}
		}, "round %d", round)
		require.Len(t, testbed.Matched(c.podsOf("web")), 2)
		require.Empty(t, c.FindPod("vulture").Spec.NodeName, "the capacity was never free")
	}
	c.awaitHeld(0, "nothing is held for ever")
}

// A StatefulSet makes its pod anew, under the same name, as soon as it is gone: again and again there is
// a Reservation of the name to be made.
func statefulSet(c *cluster) {
	t := c.T
	c.nodes(3)
	_, err := c.Client().AppsV1().StatefulSets(c.Namespace).Create(t.Context(), c.newStatefulSet("db", 2, "3", keep),
		metav1.CreateOptions{})
	require.NoError(t, err)
	nodes := map[string]string{}
	for _, pod := range c.awaitPods("db", 2) {
		nodes[pod.Name] = pod.Spec.NodeName
	}
	for round := range 5 {
		was := c.FindPod("db-0").UID
		require.NoError(t, c.Client().CoreV1().Pods(c.Namespace).Delete(t.Context(), "db-0", metav1.DeleteOptions{}))
		c.Eventually(func(t *assert.CollectT) {
			pod := c.FindPod("db-0")
			if assert.NotNil(t, pod) {
				assert.NotEqual(t, was, pod.UID)
				assert.Equal(t, nodes["db-0"], pod.Spec.NodeName, "round %d", round)
			}
		})
		require.Contains(t, testbed.Matched(c.Pods()), "db-0", "round %d", round)
	}
	// Scaled down and up: both names at once.
	for _, replicas := range []string{"0", "2"} {
		_, err = c.Client().AppsV1().StatefulSets(c.Namespace).Patch(t.Context(), "db", "application/merge-patch+json",
			[]byte(`{"spec":{"replicas":`+replicas+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		if replicas == "0" {
			c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.Pods()); assert.Len(t, c.ListReservations(), 2) })
		}
	}
	require.Len(t, testbed.Matched(c.awaitPods("db", 2)), 2)
	c.awaitHeld(0)
}

// Pods that finish by themselves need no capacity, and deleting them later keeps none.
func finishedPods(c *cluster) {
	t := c.T
	c.nodes(1)
	c.Create(c.newPod("done", "4", keep))
	c.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, corev1.PodRunning, c.FindPod("done").Status.Phase)
	})
	_, err := c.Client().CoreV1().Pods(c.Namespace).Patch(t.Context(), "done", "application/merge-patch+json",
		[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	c.Create(c.newPod("next", "4", nil))
	c.AwaitBound("next")
	c.Delete("done")
	controlplane.Never(t, func() bool { return len(c.ListReservations()) > 0 }, testbed.Never, testbed.Poll)
}

// After the ttl the capacity is everybody's, and who waits for it gets it.
func keptForATime(c *cluster) {
	t := c.T
	c.nodes(1)
	c.Create(c.newPod("first", "4", testbed.Pairs(v1alpha1.ReservationAnnotation, "true",
		v1alpha1.ReservationTTLAnnotation, "10")))
	c.AwaitBound("first")
	c.Delete("first")
	rsv := c.AwaitReservation("first", v1alpha1.ReservationAvailable)
	c.Create(c.newPod("waits", "4", nil))
	c.AwaitRefused("waits")
	_, at := c.AwaitBound("waits")
	late := at.Sub(rsv.Status.ExpiresAt.Time)
	t.Logf("bound %s after the capacity was free", late.Round(time.Millisecond))
	require.Positive(t, late, "it did not wait")
	c.awaitHeld(0)
}

// A pod that kube-scheduler deletes to make capacity for another keeps none: the other would wait for ever.
func preemptedPods(c *cluster) {
	t := c.T
	c.nodes(1)
	c.CreatePriorityClass("high", 1000)
	low := c.newPod("low", "3", keep)
	c.Create(low)
	c.AwaitBound("low")
	high := c.newPod("high", "3", nil)
	high.Spec.PriorityClassName = "high"
	c.Create(high)
	c.AwaitBound("high")
	require.Nil(t, c.FindPod("low"))
	require.Empty(t, c.ListReservations())
}
