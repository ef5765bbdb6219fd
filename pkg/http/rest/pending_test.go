package rest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

func pendingPods(answer reserver.PendingAnswer) (pods []string) {
	for i := range answer.Pods {
		pods = append(pods, answer.Pods[i].Explanation.Pod+" "+answer.Pods[i].WaitsFor)
	}
	return pods
}

// Pods that were refused are listed until they are bound, with what explain says of each.
func TestPending(t *testing.T) {
	f := newFixture(t, Limits{})
	list := func(query string) reserver.PendingAnswer {
		answer := get[reserver.PendingAnswer](f, "/v1/pending?"+query)
		assert.NotNil(t, answer.Pods)
		return answer
	}
	assert.Empty(t, list("").Pods)
	refuseSome(f) // for want of two CPUs on node-1
	large := aPod("large", "5", "1Gi")
	large.ResourceVersion = "1"
	f.Bring(large)
	require.Error(t, f.tryBind(large, "node-2"))
	require.Error(t, f.tryBind(large, "node-2"))
	assert.Equal(t, []string{
		"a-0 scheduler", "a-1 scheduler", "a-2 scheduler", "b-0 scheduler", "b-1 scheduler",
		"large node",
	}, pendingPods(list("")))
	for _, node := range []string{"node-2", "node-3"} {
		f.bind(aPod("on-"+node, "3", "1Gi"), node)
	}
	assert.Equal(t, []string{"b-0 capacity", "b-1 capacity"}, pendingPods(list("namespace=team-b")))
	assert.Equal(t, []string{"large node"}, pendingPods(list("waits=node")))
	assert.Empty(t, list("scheduler=x").Pods)

	got := list("waits=node").Pods[0]
	assert.Equal(t, 2, got.Times)
	assert.Equal(t, []string{"admission", "InsufficientResource"}, []string{got.Path, got.LastReason})
	assert.False(t, got.LastRefused.Before(got.Since))
	explained := get[reserver.ExplainAnswer](f, "/v1/explain?namespace=team-a&pod=large")
	assert.Equal(t, explained, got.Explanation)
	assert.NotNil(t, got.Explanation.Closest)

	assert.Equal(t, pendingPods(list("")), allPages(t, func(next string) ([]string, string) {
		page := list("limit=2&continue=" + next)
		return pendingPods(page), page.Continue
	}))

	f.bind(large, "node-2")
	assert.Empty(t, list("waits=node").Pods, "it has its node")

	f.reads = map[string]bool{"team-b": true}
	var some reserver.PendingAnswer
	text := f.getAs("/v1/pending", &some)
	assert.Equal(t, []string{"b-0 capacity", "b-1 capacity"}, pendingPods(some))
	assert.NotContains(t, text, "team-a")
}

// Needs has the sizes of the nodes that are waited for: for pods, and for Reservations that fit none.
func TestPendingNeeds(t *testing.T) {
	f := newFixture(t, Limits{})
	large := aPod("large", "5", "1Gi")
	large.ResourceVersion = "1"
	f.Bring(large)
	require.Error(t, f.tryBind(large, "node-2"))
	slot := func(name, cpu, node string, labels map[string]string) v1alpha1.Slot {
		return v1alpha1.Slot{
			Name: name, NodeName: node, NodeSelector: labels,
			Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)},
		}
	}
	f.waiting = []reservations.Pending{{NoNodeFits: true, Reservation: &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "r"},
		Spec: v1alpha1.ReservationSpec{Slots: []v1alpha1.Slot{
			slot("a", "3", "", nil), slot("b", "64", "", nil), slot("c", "3", "", nil),
			slot("d", "3", "", map[string]string{"disk": "ssd"}), slot("e", "3", "node-1", nil),
		}},
	}}, {Reservation: &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "just-made"},
		Spec:       v1alpha1.ReservationSpec{Slots: []v1alpha1.Slot{slot("a", "3", "", nil)}},
	}}}
	needs := func(query string) []reserver.NodeNeed {
		answer := get[reserver.PendingAnswer](f, "/v1/pending?"+query)
		return answer.Needs
	}
	pod := reserver.NodeNeed{
		Namespace: "team-a", Pod: "large", Count: 1, Requests: reserver.Amounts{"cpu": 5000, "memory": 1 << 30, "pods": 1},
		NewNode: true,
	}
	slots := []reserver.NodeNeed{
		{Namespace: "team-b", Reservation: "r", Count: 2, Requests: reserver.Amounts{"cpu": 3000, "pods": 1}},
		{Namespace: "team-b", Reservation: "r", Count: 1, Requests: reserver.Amounts{"cpu": 64000, "pods": 1}, NewNode: true},
		{
			Namespace: "team-b", Reservation: "r", Count: 1, Requests: reserver.Amounts{"cpu": 3000, "pods": 1},
			NodeSelector: map[string]string{"disk": "ssd"},
		},
	}
	assert.Equal(t, append([]reserver.NodeNeed{pod}, slots...), needs(""))
	assert.Equal(t, []reserver.NodeNeed{pod, slots[1]}, needs("waits=node"))
	assert.Equal(t, []reserver.NodeNeed{slots[0], slots[2]}, needs("waits=capacity"))
	assert.Empty(t, needs("continue=9999999999999999999/x"), "the first page has them")
	assert.Equal(t, []reserver.NodeNeed{pod}, needs("namespace=team-a"))
	f.reads = map[string]bool{"team-a": true}
	text := f.getAs("/v1/pending", &reserver.PendingAnswer{})
	assert.Contains(t, text, "large")
	assert.NotContains(t, text, "team-b")
}

// A caller that may see one namespace of very many gets the same of it each time.
func TestPendingOfManyNamespaces(t *testing.T) {
	f := newFixture(t, Limits{})
	for k := range 2 * maxAsked {
		require.Error(t, f.tryBind(f.gang(fmt.Sprintf("team-%03d", k), fmt.Sprint("g", k), 2, "99")[0], "node-1"))
	}
	f.reads = map[string]bool{"team-007": true}
	for range 10 {
		require.Contains(t, f.getAs("/v1/pending", &reserver.PendingAnswer{}), "team-007")
	}
}
