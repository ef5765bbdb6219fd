package reservations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestLife follows Reservations through their phases, as kubectl shows them.
func TestLife(t *testing.T) {
	c := newCluster(t)
	for name, test := range map[string]func(*cluster){
		"phases":      phases,
		"shared":      sharedSlot,
		"cordoned":    cordoned,
		"other-class": chosenByLabels,
	} {
		t.Run(name, func(t *testing.T) { test(c.in(t, name)) })
	}
	c.RequireNeverOvercommitted()
}

// phases: a slot waits for its node, is held, and is used by a pod of its index.
func phases(c *cluster) {
	c.CreateReservation("r",
		`{ttl: 10m, consumers: {index: web}, slots: [{name: a, nodeName: phases-0, requests: {cpu: 3}}]}`)
	rsv := c.AwaitReservation("r", v1alpha1.ReservationPending)
	assert.Equal(c.T, "NodeUnknown", reason(rsv))
	assert.Equal(c.T, "<nil>|Pending|0/1", c.columns("r"))
	refusal := c.AwaitRefusal("path=object&namespace=phases")
	assert.Equal(c.T, []string{"phases/r/a", "NodeUnknown"}, []string{refusal.Reservation, refusal.Rejection.Reason})
	c.Eventually(func(t *assert.CollectT) {
		var listed reserver.ReservationsAnswer
		require.NoError(t, c.Ledger.Get(c.T.Context(), testbed.ReservationsPath+"?namespace=phases", &listed))
		require.Len(t, listed.Reservations, 1)
		require.NotNil(t, listed.Reservations[0].Pending)
		assert.Equal(t, "NodeUnknown", listed.Reservations[0].Pending.Reason)
	})

	node := c.nodes(1)[0]
	c.waitFor("r", v1alpha1.ConditionAvailable, metav1.ConditionTrue)
	rsv = c.AwaitReservation("r", v1alpha1.ReservationAvailable)
	assert.Equal(c.T, "phases-0|Available|0/1", c.columns("r"))
	assert.Equal(c.T, 10*time.Minute, rsv.Status.ExpiresAt.Sub(rsv.Status.AvailableAt.Time))
	assert.NotEmpty(c.T, rsv.Status.Slots[0].NodeUID)

	other := c.createPod("other", "2", "")
	assert.Contains(c.T, c.Bind(other, node), "phases/r/a", "a refusal names who holds the capacity")
	assert.Contains(c.T, c.Filter(other, node), node)
	c.AwaitEvent("Pod", "other", "CapacityReserved",
		"node phases-0 would have capacity for this pod, but reservation phases/r/a keeps it for others")
	assert.Len(c.T, c.Notes("Pod", "other", "CapacityReserved"), 1)

	back := c.createPod("back", "2", "web")
	assert.Empty(c.T, c.Bind(back, node))
	rsv = c.AwaitReservation("r", v1alpha1.ReservationSucceeded)
	assert.Equal(c.T, "phases-0|Succeeded|1/1", c.columns("r"))
	assert.Equal(c.T, []v1alpha1.PodReference{{Name: "back", UID: back.UID}}, rsv.Status.Slots[0].Pods)
	pod := c.Pod("back")
	assert.Equal(c.T, "phases/r/a", pod.Annotations[v1alpha1.MatchedReservationAnnotation])
	assert.Equal(c.T, string(rsv.UID), pod.Annotations[v1alpha1.MatchedReservationUIDAnnotation])
	c.waitFor("r", v1alpha1.ConditionFinished, metav1.ConditionTrue)
	assert.Empty(c.T, c.Bind(other, node), "the remainder is free")

	c.Eventually(func(t *assert.CollectT) {
		list, err := c.Client().CoreV1().Events(c.Namespace).List(c.T.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.kind=Reservation"})
		require.NoError(t, err)
		var told []string
		for i := range list.Items {
			told = append(told, list.Items[i].Reason)
		}
		assert.ElementsMatch(t, []string{"Available", "Succeeded"}, told)
	})
}

// sharedSlot: pods come and go on a slot that several share.
func sharedSlot(c *cluster) {
	node := c.nodes(1)[0]
	c.CreateReservation("r",
		`{ttl: 10m, allocatePolicy: Aligned, consumers: {selector: {}}, slots: [{name: a, nodeName: shared-0, requests: {cpu: 2}}]}`)
	c.AwaitReservation("r", v1alpha1.ReservationAvailable)
	for _, name := range []string{"p", "q"} {
		require.Empty(c.T, c.Bind(c.createPod(name, "1", ""), node))
	}
	c.Eventually(func(t *assert.CollectT) {
		rsv := c.get("r")
		assert.Len(t, rsv.Status.Slots[0].Pods, 2)
		assert.Equal(t, v1alpha1.SlotConsumed, rsv.Status.Slots[0].State)
	})
	c.Delete("p", "q")
	c.Eventually(func(t *assert.CollectT) {
		rsv := c.get("r")
		assert.Empty(t, rsv.Status.Slots[0].Pods)
		assert.Equal(t, v1alpha1.SlotReserved, rsv.Status.Slots[0].State)
	})
}

// cordoned: the capacity stays, for its own pods only.
func cordoned(c *cluster) {
	node := c.nodes(1)[0]
	c.CreateReservation("r", `{ttl: 10m, slots: [{name: a, nodeName: cordoned-0, requests: {cpu: 1}}]}`)
	c.AwaitReservation("r", v1alpha1.ReservationAvailable)
	c.ChangeNode(node, func(node *corev1.Node) { node.Spec.Unschedulable = true })
	probe := c.createPod("probe", "1", "")
	c.Eventually(func(t *assert.CollectT) {
		assert.Contains(t, c.Filter(probe, node), node, "the server has not seen it yet")
	})
	c.CreateReservation("late", `{ttl: 10m, slots: [{name: a, nodeName: cordoned-0, requests: {cpu: 1}}]}`)
	c.Eventually(func(t *assert.CollectT) { assert.Equal(t, "NodeUnschedulable", reason(c.get("late"))) })
	assert.Equal(c.T, v1alpha1.ReservationAvailable, c.get("r").Status.Phase)
}

// chosenByLabels: the server chooses among nodes by their labels, as they are now.
func chosenByLabels(c *cluster) {
	nodes := c.nodes(2)
	c.CreateReservation("r",
		`{ttl: 10m, slots: [{name: a, nodeSelector: {pool: other-class, disk: fast}, requests: {cpu: 1}}]}`)
	rsv := c.AwaitReservation("r", v1alpha1.ReservationPending)
	assert.Equal(c.T, "NoNodeFits", reason(rsv))
	c.ChangeNode(nodes[1], func(node *corev1.Node) { node.Labels["disk"] = "fast" })
	assert.Equal(c.T, nodes[1], c.AwaitReservation("r", v1alpha1.ReservationAvailable).Status.NodeName)
}
