package reservations

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// finishedTTL is how long the server keeps ended objects here.
const finishedTTL = 20 * time.Second

// TestLife follows Reservations through their phases, as kubectl shows them.
func TestLife(t *testing.T) {
	c := newCluster(t, "--finished-reservation-ttl="+finishedTTL.String())
	c.reserve("ended", `{slots: [{name: a, nodeName: none, requests: {nonsense: 1}}]}`)
	ended := c.await("ended", v1alpha1.ReservationFailed)

	for name, test := range map[string]func(*cluster){
		"phases":      phases,
		"groups":      groups,
		"shared":      sharedSlot,
		"restricted":  restricted,
		"made-anew":   madeAnew,
		"expiry":      expiry,
		"node-gone":   nodeGone,
		"node-again":  nodeMadeAgain,
		"cordoned":    cordoned,
		"other-class": chosenByLabels,
		"deleted":     deleted,
		"bad":         badObjects,
	} {
		t.Run(name, func(t *testing.T) { test(c.in(t, name)) })
	}

	t.Run("finished objects go", func(t *testing.T) {
		finished := ended.Status.Conditions[slices.IndexFunc(ended.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == v1alpha1.ConditionFinished
		})].LastTransitionTime
		c := c.in(t, "finished")
		c.namespace = "default"
		c.eventually(finishedTTL+soon, func(t *assert.CollectT) { assert.Nil(t, c.get("ended")) })
		assert.GreaterOrEqual(t, time.Since(finished.Time), finishedTTL)
	})
	require.Empty(t, c.watcher.Violations())
}

// phases: a slot waits for its node, is held, and is used by a pod of its index.
func phases(c *cluster) {
	c.reserve("r", `{ttl: 10m, consumers: {index: web}, slots: [{name: a, nodeName: phases-0, requests: {cpu: 3}}]}`)
	rsv := c.await("r", v1alpha1.ReservationPending)
	assert.Equal(c.t, "NodeUnknown", reason(rsv))
	assert.Equal(c.t, "<nil>|Pending|0/1", c.columns("r"))

	node := c.nodes(1)[0]
	c.waitFor("r", v1alpha1.ConditionAvailable, metav1.ConditionTrue)
	rsv = c.await("r", v1alpha1.ReservationAvailable)
	assert.Equal(c.t, "phases-0|Available|0/1", c.columns("r"))
	assert.Equal(c.t, 10*time.Minute, rsv.Status.ExpiresAt.Sub(rsv.Status.AvailableAt.Time))
	assert.NotEmpty(c.t, rsv.Status.Slots[0].NodeUID)

	other := c.createPod("other", "2", "")
	assert.Contains(c.t, c.bind(other, node), "phases/r/a", "a refusal names who holds the room")
	reasons, err := c.server.Filter(c.t.Context(), other, node)
	require.NoError(c.t, err)
	assert.Contains(c.t, reasons, node)
	assert.Equal(c.t, []string{"node phases-0 would have room for this pod, but reservation phases/r/a keeps it for others"},
		c.notes("other", "RoomReserved"))

	back := c.createPod("back", "2", "web")
	assert.Empty(c.t, c.bind(back, node))
	rsv = c.await("r", v1alpha1.ReservationSucceeded)
	assert.Equal(c.t, "phases-0|Succeeded|1/1", c.columns("r"))
	assert.Equal(c.t, []v1alpha1.PodReference{{Name: "back", UID: back.UID}}, rsv.Status.Slots[0].Pods)
	pod, err := c.Client().CoreV1().Pods(c.namespace).Get(c.t.Context(), "back", metav1.GetOptions{})
	require.NoError(c.t, err)
	assert.Equal(c.t, "phases/r/a", pod.Annotations[v1alpha1.MatchedReservationAnnotation])
	assert.Equal(c.t, string(rsv.UID), pod.Annotations[v1alpha1.MatchedReservationUIDAnnotation])
	c.waitFor("r", v1alpha1.ConditionFinished, metav1.ConditionTrue)
	assert.Empty(c.t, c.bind(other, node), "the remainder is free")

	c.eventually(soon, func(t *assert.CollectT) {
		list, err := c.Client().EventsV1().Events(c.namespace).List(c.t.Context(), metav1.ListOptions{})
		if !assert.NoError(t, err) {
			return
		}
		var told []string
		for i := range list.Items {
			if list.Items[i].Regarding.Kind == "Reservation" {
				told = append(told, list.Items[i].Reason)
			}
		}
		assert.ElementsMatch(t, []string{"Available", "Succeeded"}, told)
	})
}

// notes waits for Events about a pod and returns what they say.
func (c *cluster) notes(pod, reason string) (notes []string) {
	c.t.Helper()
	c.eventually(soon, func(t *assert.CollectT) {
		list, err := c.Client().EventsV1().Events(c.namespace).List(c.t.Context(), metav1.ListOptions{})
		if !assert.NoError(t, err) {
			return
		}
		notes = nil
		for i := range list.Items {
			if e := &list.Items[i]; e.Regarding.Kind == "Pod" && e.Regarding.Name == pod && e.Reason == reason {
				notes = append(notes, e.Note)
			}
		}
		assert.NotEmpty(t, notes)
	})
	return notes
}

// groups: all slots or none, on several nodes.
func groups(c *cluster) {
	nodes := c.nodes(3)
	blocker := c.createPod("blocker", "3", "")
	require.Empty(c.t, c.bind(blocker, nodes[2]))
	c.reserve("r", `{ttl: 10m, slots: [
		{name: a, nodeName: groups-0, requests: {cpu: 2}}, {name: b, nodeName: groups-1, requests: {cpu: 2}},
		{name: c, nodeName: groups-2, requests: {cpu: 2}}]}`)
	rsv := c.await("r", v1alpha1.ReservationPending)
	assert.Equal(c.t, "InsufficientResource", reason(rsv))
	room := c.createPod("room", "4", "")
	require.Empty(c.t, c.bind(room, nodes[0]), "a group that waits holds nothing")
	for _, pod := range []string{"room", "blocker"} {
		require.NoError(c.t, c.Client().CoreV1().Pods(c.namespace).Delete(c.t.Context(), pod, metav1.DeleteOptions{}))
	}
	c.waitFor("r", v1alpha1.ConditionAvailable, metav1.ConditionTrue)
	assert.Equal(c.t, "groups-0 +2|Available|0/3", c.columns("r"))
}

// sharedSlot: pods come and go on a slot that several share.
func sharedSlot(c *cluster) {
	node := c.nodes(1)[0]
	c.reserve("r", `{ttl: 10m, allocatePolicy: Aligned, consumers: {selector: {}}, slots: [{name: a, nodeName: shared-0, requests: {cpu: 2}}]}`)
	c.await("r", v1alpha1.ReservationAvailable)
	for _, name := range []string{"p", "q"} {
		require.Empty(c.t, c.bind(c.createPod(name, "1", ""), node))
	}
	c.eventually(soon, func(t *assert.CollectT) {
		rsv := c.get("r")
		assert.Len(t, rsv.Status.Slots[0].Pods, 2)
		assert.Equal(t, v1alpha1.SlotConsumed, rsv.Status.Slots[0].State)
	})
	for _, name := range []string{"p", "q"} {
		require.NoError(c.t, c.Client().CoreV1().Pods(c.namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{}))
	}
	c.eventually(soon, func(t *assert.CollectT) {
		rsv := c.get("r")
		assert.Empty(t, rsv.Status.Slots[0].Pods)
		assert.Equal(t, v1alpha1.SlotReserved, rsv.Status.Slots[0].State)
	})
}

// restricted: pods that share a slot use no more than it holds of what it names, where those of an Aligned
// one use free room of the node beside it.
func restricted(c *cluster) {
	nodes := c.nodes(2)
	spec := func(policy, node string) string {
		return `{ttl: 10m, allocatePolicy: ` + policy + `, consumers: {index: ` + policy + `}, slots: [{name: a, nodeName: ` + node + `, requests: {cpu: 2}}]}`
	}
	c.reserve("aligned", spec("Aligned", nodes[0]))
	c.reserve("restricted", spec("Restricted", nodes[1]))
	c.await("aligned", v1alpha1.ReservationAvailable)
	c.await("restricted", v1alpha1.ReservationAvailable)
	with := func(pod string) string {
		got, err := c.Client().CoreV1().Pods(c.namespace).Get(c.t.Context(), pod, metav1.GetOptions{})
		require.NoError(c.t, err)
		return got.Annotations[v1alpha1.MatchedReservationAnnotation]
	}
	require.Empty(c.t, c.bind(c.createPod("aligned-large", "3", "Aligned"), nodes[0]))
	assert.Equal(c.t, "restricted/aligned/a", with("aligned-large"))
	large := c.createPod("restricted-large", "3", "Restricted")
	assert.Contains(c.t, c.bind(large, nodes[1]), "cpu", "2 of 4 are free beside the slot, and that is not enough")

	for _, name := range []string{"first", "second"} {
		require.Empty(c.t, c.bind(c.createPod(name, "1", "Restricted"), nodes[1]))
		assert.Equal(c.t, "restricted/restricted/a", with(name))
	}
	require.Empty(c.t, c.bind(c.createPod("third", "1", "Restricted"), nodes[1]))
	assert.Empty(c.t, with("third"), "the slot is used up, the rest of the node is not")
	c.eventually(soon, func(t *assert.CollectT) { assert.Len(t, c.get("restricted").Status.Slots[0].Pods, 2) })
	require.NotEmpty(c.t, c.bind(large, nodes[1]))
}

// madeAnew: the pods of a reservation that was deleted do not use the next one of its name, not even
// for a server that reads all of them anew.
func madeAnew(c *cluster) {
	node := c.nodes(1)[0]
	const spec = `{ttl: 10m, allocatePolicy: Aligned, consumers: {selector: {}}, slots: [{name: a, nodeName: made-anew-0, requests: {cpu: 2}}]}`
	c.reserve("r", spec)
	c.await("r", v1alpha1.ReservationAvailable)
	require.Empty(c.t, c.bind(c.createPod("first", "1", ""), node))
	c.eventually(soon, func(t *assert.CollectT) { assert.Equal(t, "made-anew-0|Available|1/1", c.columns("r")) })
	require.NoError(c.t, c.versioned.GlobalreserveV1alpha1().Reservations(c.namespace).Delete(c.t.Context(), "r", metav1.DeleteOptions{}))
	c.reserve("r", spec)
	c.await("r", v1alpha1.ReservationAvailable)
	c.server.Crash(c.t)
	assert.Empty(c.t, c.bind(c.createPod("second", "2", ""), node), "all of the room is there")
	assert.NotEmpty(c.t, c.bind(c.createPod("third", "2", ""), node), "1 of 4 is free")
	c.eventually(soon, func(t *assert.CollectT) {
		pods := c.get("r").Status.Slots[0].Pods
		if assert.Len(t, pods, 1) {
			assert.Equal(t, "second", pods[0].Name)
		}
	})
}

// expiry: a ttl is extended, and when it is over the next in line has the room.
func expiry(c *cluster) {
	c.nodes(1)
	c.reserve("r", `{ttl: 3s, slots: [{name: a, nodeName: expiry-0, requests: {cpu: 4}}]}`)
	first := c.await("r", v1alpha1.ReservationAvailable).Status.ExpiresAt
	c.reserve("next", `{ttl: 10m, slots: [{name: a, nodeSelector: {pool: expiry}, requests: {cpu: 4}}]}`)
	assert.Equal(c.t, "NoNodeFits", reason(c.await("next", v1alpha1.ReservationPending)))

	require.NoError(c.t, c.patchTTL("r", "5s"))
	require.Error(c.t, c.patchTTL("r", "4s"), "never shorter")
	c.eventually(soon, func(t *assert.CollectT) {
		assert.Equal(t, first.Add(2*time.Second), c.get("r").Status.ExpiresAt.Time)
	})
	end := first.Add(2 * time.Second)
	for time.Now().Before(end.Add(-poll)) {
		require.Equal(c.t, v1alpha1.ReservationAvailable, c.get("r").Status.Phase, "at %s of %s", time.Now(), end)
		<-time.After(poll)
	}
	c.waitFor("next", v1alpha1.ConditionAvailable, metav1.ConditionTrue)
	c.t.Logf("the next had the room %s after the end", time.Since(end).Round(time.Millisecond))
	assert.Less(c.t, time.Since(end), 2*time.Second)
	assert.Equal(c.t, end, c.await("r", v1alpha1.ReservationExpired).Status.ExpiresAt.Time)
	assert.Equal(c.t, "expiry-0|Expired|0/1", c.columns("r"))
}

// nodeGone: the whole group fails with one of its nodes.
func nodeGone(c *cluster) {
	nodes := c.nodes(2)
	c.reserve("r", `{ttl: 10m, slots: [{name: a, nodeName: node-gone-0, requests: {cpu: 4}}, {name: b, nodeName: node-gone-1, requests: {cpu: 4}}]}`)
	c.await("r", v1alpha1.ReservationAvailable)
	c.deleteNode(nodes[0])
	rsv := c.await("r", v1alpha1.ReservationFailed)
	assert.Equal(c.t, "NodeGone", reason(rsv))
	assert.Empty(c.t, c.bind(c.createPod("p", "4", ""), nodes[1]), "what it held elsewhere is free")
}

// nodeMadeAgain: while the server is away, a node is deleted and another one gets its name.
func nodeMadeAgain(c *cluster) {
	nodes := c.nodes(1)
	c.reserve("r", `{ttl: 10m, slots: [{name: a, nodeName: node-again-0, requests: {cpu: 4}}]}`)
	c.await("r", v1alpha1.ReservationAvailable)
	require.NoError(c.t, c.server.Kill())
	c.deleteNode(nodes[0])
	c.nodes(1)
	require.NoError(c.t, c.server.Start(c.t.Context()))
	assert.Equal(c.t, "NodeGone", reason(c.await("r", v1alpha1.ReservationFailed)))
}

// cordoned: the room stays, for its own pods only.
func cordoned(c *cluster) {
	node := c.nodes(1)[0]
	c.reserve("r", `{ttl: 10m, slots: [{name: a, nodeName: cordoned-0, requests: {cpu: 1}}]}`)
	c.await("r", v1alpha1.ReservationAvailable)
	object, err := c.Client().CoreV1().Nodes().Get(c.t.Context(), node, metav1.GetOptions{})
	require.NoError(c.t, err)
	object.Spec.Unschedulable = true
	_, err = c.Client().CoreV1().Nodes().Update(c.t.Context(), object, metav1.UpdateOptions{})
	require.NoError(c.t, err)
	c.eventually(soon, func(t *assert.CollectT) {
		c.reserveOnce(t, "late", `{ttl: 10m, slots: [{name: a, nodeName: cordoned-0, requests: {cpu: 1}}]}`)
		late := c.get("late")
		assert.Equal(t, "NodeUnschedulable", reason(late))
	})
	assert.Equal(c.t, v1alpha1.ReservationAvailable, c.get("r").Status.Phase)
}

// reserveOnce applies an object unless it is there.
func (c *cluster) reserveOnce(t require.TestingT, name, spec string) {
	if c.get(name) == nil {
		require.NoError(t, c.apply(name, spec))
	}
}

// chosenByLabels: the server chooses among nodes by their labels, as they are now.
func chosenByLabels(c *cluster) {
	nodes := c.nodes(2)
	c.reserve("r", `{ttl: 10m, slots: [{name: a, nodeSelector: {pool: other-class, disk: fast}, requests: {cpu: 1}}]}`)
	rsv := c.await("r", v1alpha1.ReservationPending)
	assert.Equal(c.t, "NoNodeFits", reason(rsv))
	object, err := c.Client().CoreV1().Nodes().Get(c.t.Context(), nodes[1], metav1.GetOptions{})
	require.NoError(c.t, err)
	object.Labels["disk"] = "fast"
	_, err = c.Client().CoreV1().Nodes().Update(c.t.Context(), object, metav1.UpdateOptions{})
	require.NoError(c.t, err)
	assert.Equal(c.t, nodes[1], c.await("r", v1alpha1.ReservationAvailable).Status.NodeName)
}

// deleted: the room is free at once.
func deleted(c *cluster) {
	node := c.nodes(1)[0]
	c.reserve("r", `{ttl: 0s, slots: [{name: a, nodeName: deleted-0, requests: {cpu: 4}}]}`)
	rsv := c.await("r", v1alpha1.ReservationAvailable)
	assert.Nil(c.t, rsv.Status.ExpiresAt)
	pod := c.createPod("p", "4", "")
	require.NotEmpty(c.t, c.bind(pod, node))
	require.NoError(c.t, c.reservations().Delete(c.t.Context(), "r", metav1.DeleteOptions{}))
	c.eventually(soon, func(t *assert.CollectT) { assert.Empty(t, c.bind(pod, node)) })
}
