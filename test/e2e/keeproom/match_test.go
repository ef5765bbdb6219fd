package keeproom

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

func (c *cluster) createPriorityClass(name string, value int32) {
	c.t.Helper()
	_, err := c.Client().SchedulingV1().PriorityClasses().Create(c.t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value,
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func forIndex(index string) func(*v1alpha1.ReservationSpec) {
	return func(spec *v1alpha1.ReservationSpec) { spec.Consumers = &v1alpha1.ConsumerSpec{Index: index} }
}

// TestMatching is about who may use reserved room.
func TestMatching(t *testing.T) {
	c := newCluster(t)
	c.startScheduler(nil)
	c.createPriorityClass("high", 1000)
	t.Run("two namespaces, the same index", func(t *testing.T) { twoNamespaces(c, t) })
	t.Run("preemptible room", func(t *testing.T) { preemptible(c.in(t, "preemptible")) })
	t.Run("a pod that waits is sent there", func(t *testing.T) { waitingPod(c.in(t, "waiting")) })
	c.requireNeverOvercommitted()
}

// Room kept in one namespace is no use to pods of another, whatever they call themselves.
func twoNamespaces(c *cluster, t *testing.T) {
	owner, thief := c.in(t, "owner"), c.in(t, "thief")
	owner.nodes(1)
	index := annotations(v1alpha1.ReservationAnnotation, "true", v1alpha1.ReservationIndexAnnotation, "shared")
	owner.create(owner.newPod("first", "3", index))
	first, _ := owner.awaitBound("first")
	owner.delete("first")
	owner.awaitReservation("first", v1alpha1.ReservationAvailable)

	steals := thief.newPod("steals", "3", annotations(
		v1alpha1.ReservationIndexAnnotation, "shared", v1alpha1.MatchedReservationAnnotation, "owner/first/deleted-pod"))
	steals.Spec.NodeSelector = map[string]string{"pool": "owner"}
	thief.create(steals)
	thief.awaitRefused("steals")
	controlplane.Never(t, func() bool { return thief.get("steals").Spec.NodeName != "" }, never, poll)

	owner.create(owner.newPod("back", "3", index))
	back, _ := owner.awaitBound("back")
	require.Equal(t, first.Spec.NodeName, back.Spec.NodeName)
	require.Equal(t, "owner/first/deleted-pod", back.Annotations[ours])
	require.Empty(t, thief.get("steals").Spec.NodeName)
}

// A pod of higher priority takes preemptible room where it fits nowhere else, all of the reservation's.
func preemptible(c *cluster) {
	t := c.t
	nodes := c.nodes(3)
	c.reserve("spare", func(spec *v1alpha1.ReservationSpec) {
		spec.Preemptible, spec.Priority, spec.TTL = true, ptr.To[int32](0), &metav1.Duration{Duration: time.Hour}
	}, c.slot("a", nodes[0], "4"), c.slot("b", nodes[1], "4"))
	c.awaitReservation("spare", v1alpha1.ReservationAvailable)

	high := func(name string) *corev1.Pod {
		pod := c.newPod(name, "3", nil)
		pod.Spec.PriorityClassName = "high"
		return pod
	}
	c.create(high("high-1"))
	pod, _ := c.awaitBound("high-1")
	require.Equal(t, nodes[2], pod.Spec.NodeName, "there is room that nobody holds")
	c.create(c.newPod("low", "3", nil))
	c.awaitRefused("low")
	c.awaitReservation("spare", v1alpha1.ReservationAvailable)

	// There is room on a node that the pod cannot be on: the server cannot know that at once.
	_, err := c.CreateNodes(t.Context(), 1, controlplane.NodeTemplate{Prefix: "of-others-"})
	require.NoError(t, err)
	started := time.Now()
	c.create(high("high-2"))
	pod, at := c.awaitBound("high-2")
	t.Logf("preempted after %s", at.Sub(started).Round(time.Millisecond))
	require.Contains(t, nodes[:2], pod.Spec.NodeName)
	ended := c.awaitReservation("spare", v1alpha1.ReservationPreempted)
	for _, slot := range ended.Status.Slots {
		require.Equal(t, v1alpha1.SlotReleased, slot.State, slot.Name)
	}
	freed, _ := c.awaitBound("low")
	require.Contains(t, nodes[:2], freed.Spec.NodeName, "the whole reservation has ended")
}

// A pod that was refused before there was room for it is sent to the room that is kept for it, at once; one
// that waits as long and has no right to it goes on waiting.
func waitingPod(c *cluster) {
	t := c.t
	nodes := c.nodes(2)
	c.reserve("rest", func(*v1alpha1.ReservationSpec) {}, c.slot("a", nodes[0], "4"))
	c.awaitReservation("rest", v1alpha1.ReservationAvailable)
	index := annotations(v1alpha1.ReservationAnnotation, "true", v1alpha1.ReservationIndexAnnotation, "late")
	c.create(c.newPod("goes", "4", index))
	c.awaitBound("goes")
	c.create(c.newPod("other", "3", nil))
	c.awaitRefused("other")
	c.create(c.newPod("waits", "3", index))
	c.awaitRefused("waits")
	c.delete("goes")
	pod, _ := c.awaitBound("waits")
	require.Equal(t, nodes[1], pod.Spec.NodeName)
	require.Equal(t, c.namespace+"/goes/deleted-pod", pod.Annotations[ours])
	require.Empty(t, c.get("other").Spec.NodeName)
}

// TestSteering has 500 nodes, of which kube-scheduler looks at a few for each pod. Every pod that comes
// back still finds the one node that is held for it.
func TestSteering(t *testing.T) {
	c := newCluster(t)
	c.startScheduler(func(config []byte) []byte {
		sampled := bytes.Replace(config, []byte("percentageOfNodesToScore: 100"), []byte("percentageOfNodesToScore: 5"), 1)
		require.NotEqual(t, config, sampled)
		return sampled
	})
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
		c.eventually(late, func(t *assert.CollectT) {
			assert.Empty(t, c.podsOf("web"))
			assert.Len(t, c.list(), replicas)
		})
		started := time.Now()
		c.scale("web", replicas)
		pods := c.awaitPods("web", replicas)
		t.Logf("round %d: %d pods back after %s", round, len(pods), time.Since(started).Round(time.Millisecond))
		require.Len(t, matched(pods), replicas, "%v", matched(pods))
		for i := range pods {
			require.True(t, was[pods[i].Spec.NodeName], "%s is on %s, which was not held", pods[i].Name, pods[i].Spec.NodeName)
		}
		c.eventually(soon, func(t *assert.CollectT) { assert.Empty(t, c.list()) })
	}
	// A single pod, and the nomination that brought it there.
	used := map[string]bool{}
	for _, pod := range c.pods("") {
		used[pod.Spec.NodeName] = true
	}
	free := nodes[slices.IndexFunc(nodes, func(node string) bool { return !used[node] })]
	c.reserve("one", forIndex("one"), c.slot("a", free, "1"))
	c.awaitReservation("one", v1alpha1.ReservationAvailable)
	c.create(c.newPod("one", "1", annotations(v1alpha1.ReservationIndexAnnotation, "one")))
	pod, _ := c.awaitBound("one")
	require.Equal(t, free, pod.Spec.NodeName)
	require.Equal(t, fmt.Sprintf("%s/one/a", c.namespace), pod.Annotations[ours])
	c.requireNeverOvercommitted()
}
