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
		"taken-away":         annotationTakenAway,
		"not-asked-for":      notAskedFor,
		"stateful-set":       statefulSet,
		"job":                job,
		"finished":           finishedPods,
		"same-name":          sameName,
		"name-taken":         nameTaken,
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

func annotationTakenAway(c *cluster) {
	c.nodes(1)
	c.deploy("web", 2, "1", keep, nil)
	c.patchDeployment("web", `{"metadata":{"annotations":{"globalreserve.io/reservation":null}}}`)
	c.scale("web", 0)
	c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.Pods()) })
	c.Create(c.newPod("next", "4", nil)) // needs all of the node
	c.AwaitBound("next")
	require.Empty(c.T, c.ListReservations())
}

func notAskedFor(c *cluster) {
	c.nodes(1)
	c.deploy("web", 1, "2", nil, nil)
	c.deploy("api", 1, "2", keep, testbed.Pairs(v1alpha1.ReservationAnnotation, "false"))
	c.scale("web", 0)
	c.scale("api", 0)
	c.Create(c.newPod("next", "4", nil))
	c.AwaitBound("next")
	require.Empty(c.T, c.ListReservations())
}

// A StatefulSet makes its pod anew, under the same name, as soon as it is gone: again and again there is
// a Reservation of the name to be made.
func statefulSet(c *cluster) {
	t := c.T
	c.nodes(3)
	_, err := c.Client().AppsV1().StatefulSets(c.Namespace).Create(t.Context(), c.newStatefulSet("db", 2, "3", keep), metav1.CreateOptions{})
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
		_, err = c.Client().AppsV1().StatefulSets(c.Namespace).Patch(t.Context(), "db", "application/merge-patch+json", []byte(`{"spec":{"replicas":`+replicas+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		if replicas == "0" {
			c.Eventually(func(t *assert.CollectT) { assert.Empty(t, c.Pods()); assert.Len(t, c.ListReservations(), 2) })
		}
	}
	require.Len(t, testbed.Matched(c.awaitPods("db", 2)), 2)
	c.awaitHeld(0)
}

// A Job's pod that is deleted before it is done is made anew, under a new name. kwok ends the pods of Jobs
// half a second after they run, so it may take more than one Job to have one deleted in time.
func job(c *cluster) {
	t := c.T
	c.nodes(2)
	for attempt := range 10 {
		name := fmt.Sprintf("work-%d", attempt)
		_, err := c.Client().BatchV1().Jobs(c.Namespace).Create(t.Context(), c.newJob(name, "3", keep), metav1.CreateOptions{})
		require.NoError(t, err)
		first := c.awaitPods(name, 1)[0]
		require.NoError(t, c.Client().CoreV1().Pods(c.Namespace).Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
		if second, ok := c.nextPod(name, first.Name); ok {
			require.Equal(t, first.Spec.NodeName, second.Spec.NodeName)
			require.NotEmpty(t, second.Annotations[ours])
			return
		}
	}
	require.FailNow(t, "no pod of a Job was deleted before it was done")
}

// nextPod waits for the second pod of a Job. ok is false where the first one completed it.
func (c *cluster) nextPod(job, first string) (second corev1.Pod, ok bool) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		got, err := c.Client().BatchV1().Jobs(c.Namespace).Get(c.T.Context(), job, metav1.GetOptions{})
		require.NoError(t, err)
		for _, pod := range testbed.Bound(c.podsOf(job)) {
			if pod.Name != first {
				second, ok = pod, true
			}
		}
		assert.True(t, ok || got.Status.Succeeded > 0, "the Job goes on")
	})
	return second, ok
}

// Pods that finish by themselves need no capacity, and deleting them later keeps none.
func finishedPods(c *cluster) {
	t := c.T
	c.nodes(1)
	c.Create(c.newPod("done", "4", keep))
	c.Eventually(func(t *assert.CollectT) {
		assert.Equal(t, corev1.PodRunning, c.FindPod("done").Status.Phase)
	})
	_, err := c.Client().CoreV1().Pods(c.Namespace).Patch(t.Context(), "done", "application/merge-patch+json", []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	c.Create(c.newPod("next", "4", nil))
	c.AwaitBound("next")
	c.Delete("done")
	controlplane.Never(t, func() bool { return len(c.ListReservations()) > 0 }, testbed.Never, testbed.Poll)
}

// Without an index and a controller, the capacity is for a pod of the same name.
func sameName(c *cluster) {
	t := c.T
	c.nodes(1)
	c.Create(c.newPod("pet", "3", keep))
	c.AwaitBound("pet")
	c.Delete("pet")
	c.AwaitReservation("pet", v1alpha1.ReservationAvailable)
	c.Create(c.newPod("other", "3", nil))
	c.AwaitRefused("other")
	c.Create(c.newPod("pet", "3", nil))
	pod, _ := c.AwaitBound("pet")
	require.Equal(t, c.Namespace+"/pet/deleted-pod", pod.Annotations[ours])
}

// Somebody else's Reservation has the name.
func nameTaken(c *cluster) {
	t := c.T
	c.nodes(1)
	c.CreateReservation("web-0", `{slots: [{name: a, nodeSelector: {pool: name-taken}, requests: {cpu: 1}}]}`)
	c.AwaitReservation("web-0", v1alpha1.ReservationAvailable)
	c.Create(c.newPod("web-0", "3", testbed.Pairs(v1alpha1.ReservationAnnotation, "true", v1alpha1.ReservationIndexAnnotation, "i")))
	was, _ := c.AwaitBound("web-0")
	c.Delete("web-0")
	name := "web-0-" + string(was.UID)[:8]
	c.AwaitReservation(name, v1alpha1.ReservationAvailable)
	c.Create(c.newPod("back", "3", testbed.Pairs(v1alpha1.ReservationIndexAnnotation, "i")))
	back, _ := c.AwaitBound("back")
	require.Equal(t, c.Namespace+"/"+name+"/deleted-pod", back.Annotations[ours])
	c.awaitHeld(1)
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
	started := time.Now()
	c.Create(high)
	_, at := c.AwaitBound("high")
	t.Logf("bound %s after it was created", at.Sub(started).Round(time.Millisecond))
	require.Nil(t, c.FindPod("low"))
	require.Empty(t, c.ListReservations())
}
