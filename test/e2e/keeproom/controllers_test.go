package keeproom

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
)

var keep = annotations(v1alpha1.ReservationAnnotation, "true")

// TestControllers runs controllers whose pods go and come back.
func TestControllers(t *testing.T) {
	c := newCluster(t)
	c.startScheduler(nil)
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
	c.requireNeverOvercommitted()
}

// On nodes that are full, the new pods of a rolling update have room only where the old ones were.
func rollingUpdate(c *cluster) {
	t := c.t
	c.nodes(2)
	c.deploy("web", 2, "3", keep, nil)
	c.fill(2, "rest", "1")
	c.create(c.newPod("vulture", "3", nil)) // waits for any room that becomes free
	c.awaitRefused("vulture")
	for round := range 3 {
		c.patchDeployment("web", fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}}}}}`, round))
		c.eventually(late, func(t *assert.CollectT) {
			pods := c.podsOf("web")
			assert.Len(t, bound(pods), 2)
			for i := range pods {
				assert.Equal(t, strconv.Itoa(round), pods[i].Annotations["round"])
			}
		}, "round %d", round)
		require.Len(t, matched(c.podsOf("web")), 2)
		require.Empty(t, c.get("vulture").Spec.NodeName, "the room was never free")
	}
	c.eventually(soon, func(t *assert.CollectT) { assert.Empty(t, c.list(), "nothing is held for ever") })
}

func annotationTakenAway(c *cluster) {
	c.nodes(1)
	c.deploy("web", 2, "1", keep, nil)
	c.patchDeployment("web", `{"metadata":{"annotations":{"globalreserve.io/reservation":null}}}`)
	c.scale("web", 0)
	c.eventually(soon, func(t *assert.CollectT) { assert.Empty(t, c.pods("")) })
	c.create(c.newPod("next", "4", nil)) // needs all of the node
	c.awaitBound("next")
	require.Empty(c.t, c.list())
}

func notAskedFor(c *cluster) {
	c.nodes(1)
	c.deploy("web", 1, "2", nil, nil)
	c.deploy("api", 1, "2", keep, annotations(v1alpha1.ReservationAnnotation, "false"))
	c.scale("web", 0)
	c.scale("api", 0)
	c.create(c.newPod("next", "4", nil))
	c.awaitBound("next")
	require.Empty(c.t, c.list())
}

// A StatefulSet makes its pod anew, under the same name, as soon as it is gone: again and again there is
// a Reservation of the name to be made.
func statefulSet(c *cluster) {
	t := c.t
	c.nodes(3)
	_, err := c.Client().AppsV1().StatefulSets(c.namespace).Create(t.Context(), c.newStatefulSet("db", 2, "3", keep), metav1.CreateOptions{})
	require.NoError(t, err)
	nodes := map[string]string{}
	for _, pod := range c.awaitPods("db", 2) {
		nodes[pod.Name] = pod.Spec.NodeName
	}
	for round := range 5 {
		was := c.get("db-0").UID
		require.NoError(t, c.Client().CoreV1().Pods(c.namespace).Delete(t.Context(), "db-0", metav1.DeleteOptions{}))
		c.eventually(soon, func(t *assert.CollectT) {
			pod := c.get("db-0")
			if assert.NotNil(t, pod) {
				assert.NotEqual(t, was, pod.UID)
				assert.Equal(t, nodes["db-0"], pod.Spec.NodeName, "round %d", round)
			}
		})
		require.NotEmpty(t, matched(c.pods("metadata.name=db-0")), "round %d", round)
	}
	// Scaled down and up: both names at once.
	for _, replicas := range []string{"0", "2"} {
		_, err = c.Client().AppsV1().StatefulSets(c.namespace).Patch(t.Context(), "db", "application/merge-patch+json", []byte(`{"spec":{"replicas":`+replicas+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		if replicas == "0" {
			c.eventually(soon, func(t *assert.CollectT) { assert.Empty(t, c.pods("")); assert.Len(t, c.list(), 2) })
		}
	}
	require.Len(t, matched(c.awaitPods("db", 2)), 2)
	c.eventually(soon, func(t *assert.CollectT) { assert.Empty(t, c.list()) })
}

// A Job's pod that is deleted before it is done is made anew, under a new name. kwok ends the pods of Jobs
// half a second after they run, so it may take more than one Job to have one deleted in time.
func job(c *cluster) {
	t := c.t
	c.nodes(2)
	for attempt := range 5 {
		name := fmt.Sprintf("work-%d", attempt)
		_, err := c.Client().BatchV1().Jobs(c.namespace).Create(t.Context(), c.newJob(name, "3", keep), metav1.CreateOptions{})
		require.NoError(t, err)
		first := c.awaitPods(name, 1)[0]
		require.NoError(t, c.Client().CoreV1().Pods(c.namespace).Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
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
	c.t.Helper()
	c.eventually(late, func(t *assert.CollectT) {
		got, err := c.Client().BatchV1().Jobs(c.namespace).Get(c.t.Context(), job, metav1.GetOptions{})
		require.NoError(t, err)
		for _, pod := range bound(c.podsOf(job)) {
			if pod.Name != first {
				second, ok = pod, true
			}
		}
		assert.True(t, ok || got.Status.Succeeded > 0, "the Job goes on")
	})
	return second, ok
}

// Pods that finish by themselves need no room, and deleting them later keeps none.
func finishedPods(c *cluster) {
	t := c.t
	c.nodes(1)
	c.create(c.newPod("done", "4", keep))
	c.eventually(soon, func(t *assert.CollectT) {
		assert.Equal(t, corev1.PodRunning, c.get("done").Status.Phase)
	})
	_, err := c.Client().CoreV1().Pods(c.namespace).Patch(t.Context(), "done", "application/merge-patch+json", []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	c.create(c.newPod("next", "4", nil))
	c.awaitBound("next")
	c.delete("done")
	controlplane.Never(t, func() bool { return len(c.list()) > 0 }, never/2, poll)
}

// Without an index and a controller, the room is for a pod of the same name.
func sameName(c *cluster) {
	t := c.t
	c.nodes(1)
	c.create(c.newPod("pet", "3", keep))
	c.awaitBound("pet")
	c.delete("pet")
	c.awaitReservation("pet", v1alpha1.ReservationAvailable)
	c.create(c.newPod("other", "3", nil))
	c.awaitRefused("other")
	c.create(c.newPod("pet", "3", nil))
	pod, _ := c.awaitBound("pet")
	require.Equal(t, c.namespace+"/pet/deleted-pod", pod.Annotations[ours])
}

// Somebody else's Reservation has the name.
func nameTaken(c *cluster) {
	t := c.t
	c.nodes(1)
	c.reserve("web-0", func(spec *v1alpha1.ReservationSpec) {}, c.slot("a", "", "1"))
	c.awaitReservation("web-0", v1alpha1.ReservationAvailable)
	c.create(c.newPod("web-0", "3", annotations(v1alpha1.ReservationAnnotation, "true", v1alpha1.ReservationIndexAnnotation, "i")))
	was, _ := c.awaitBound("web-0")
	c.delete("web-0")
	name := "web-0-" + string(was.UID)[:8]
	c.awaitReservation(name, v1alpha1.ReservationAvailable)
	c.create(c.newPod("back", "3", annotations(v1alpha1.ReservationIndexAnnotation, "i")))
	back, _ := c.awaitBound("back")
	require.Equal(t, c.namespace+"/"+name+"/deleted-pod", back.Annotations[ours])
	c.eventually(soon, func(t *assert.CollectT) { assert.Len(t, c.list(), 1) })
}

// A pod that kube-scheduler deletes to make room for another keeps none: the other would wait for ever.
func preemptedPods(c *cluster) {
	t := c.t
	c.nodes(1)
	c.createPriorityClass("high", 1000)
	low := c.newPod("low", "3", keep)
	c.create(low)
	c.awaitBound("low")
	high := c.newPod("high", "3", nil)
	high.Spec.PriorityClassName = "high"
	started := time.Now()
	c.create(high)
	_, at := c.awaitBound("high")
	t.Logf("bound %s after it was created", at.Sub(started).Round(time.Millisecond))
	require.Nil(t, c.get("low"))
	require.Empty(t, c.list())
}
