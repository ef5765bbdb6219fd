package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/http/auth/authtest"
	"github.com/globalreserve/globalreserve/pkg/reservations"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// onNode adds a pod of a Deployment to a node, in the ledger and in the API server's list.
func (f *fixture) onNode(name, node, cpu string) {
	pod := aPod(name, cpu, "1Gi")
	pod.Spec.NodeName = node
	pod.Labels = map[string]string{"pod-template-hash": "5d4f8c7b9"}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f8c7b9", Controller: ptr.To(true),
	}}
	f.bind(pod, node)
	f.whole = append(f.whole, pod)
}

func TestDrainPlan(t *testing.T) {
	f := newFixture(t, Limits{})
	f.onNode("a", "node-1", "3")
	f.onNode("b", "node-1", "2")
	f.onNode("other", "node-2", "1")
	f.onNode("full", "node-3", "4")
	var answer reserver.DrainPlanAnswer
	f.post("/v1/drain/plan", reserver.DrainPlanRequest{Nodes: []string{"node-1"}}, &answer)
	assert.Equal(t, f.ledger.Revision(), answer.Revision)
	assert.Equal(t, 1, answer.Unplaced)
	require.Len(t, answer.Pods, 2)
	assert.Equal(t, reserver.DrainPod{
		Namespace: "team-a", Pod: "a", UID: "uid-a", Node: "node-1", OwnerKind: "Deployment", OwnerName: "web",
		Scheduler: testScheduler, Requests: reserver.Amounts{"cpu": 3000, "memory": 1 << 30, "pods": 1},
		Action: reserver.DrainMove, To: "node-2",
	}, answer.Pods[0])
	assert.Empty(t, answer.Pods[1].To)
	assert.Contains(t, answer.Pods[1].Why, "it would fit if fewer pods went with it")
	only := reserver.DrainPlanRequest{Nodes: []string{"node-1"}, Pods: []string{"uid-b"}}
	f.post("/v1/drain/plan", only, &answer)
	assert.Zero(t, answer.Unplaced)
	assert.Equal(t, "node-2", answer.Pods[1].To)
}

// A drain is one thing, of what the caller sees of it.
func TestDrainsThatGoOn(t *testing.T) {
	f := newFixture(t, Limits{})
	add := func(drain, namespace, name, waitsFor string, d reservations.Drained) {
		d.Reservation = &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.DrainLabel: drain},
			Annotations: map[string]string{
				v1alpha1.DrainedNodesAnnotation: "a,b", v1alpha1.DrainedOwnerAnnotation: "Deployment/" + name,
				v1alpha1.DrainWaitsForAnnotation: waitsFor,
			},
		}}
		f.drained = append(f.drained, d)
	}
	add("second", "team-a", "db", "", reservations.Drained{Phase: "Available", Unused: 1, Message: "all is kept"})
	add("first", "team-a", "web", "the budget", reservations.Drained{Phase: "Available", Used: 2, Unused: 3})
	add("first", "team-b", "job", "", reservations.Drained{Phase: "Succeeded", Used: 4, Message: "pods used 4 of 4"})
	add("first", "team-b", "late", "", reservations.Drained{Phase: "Expired", Used: 1, Message: "the ttl is over"})
	web := reserver.DrainOwner{
		Namespace: "team-a", Reservation: "web", Owner: "Deployment/web", Done: 2, Left: 3, WaitsFor: "the budget",
	}
	job := reserver.DrainOwner{Namespace: "team-b", Reservation: "job", Owner: "Deployment/job", Done: 4}
	late := reserver.DrainOwner{
		Namespace: "team-b", Reservation: "late", Owner: "Deployment/late", Done: 1,
		WaitsFor: "its places are not kept (Expired): the ttl is over",
	}
	db := reserver.DrainOwner{Namespace: "team-a", Reservation: "db", Owner: "Deployment/db", Left: 1}
	drain := func(name string, owners ...reserver.DrainOwner) reserver.Drain {
		return reserver.Drain{Name: name, Nodes: []string{"a", "b"}, Owners: owners}
	}
	drains := func(query string) []reserver.Drain {
		return get[reserver.ReservationsAnswer](f, "/v1/reservations"+query).Drains
	}
	assert.Equal(t, []reserver.Drain{drain("first", web, job, late), drain("second", db)}, drains(""))
	assert.Equal(t, []reserver.Drain{drain("first", job, late)}, drains("?namespace=team-b"))
	assert.Empty(t, drains("?continue=a/b"), "they are on the first page")
	f.reads = map[string]bool{"team-a": true}
	answer := reserver.ReservationsAnswer{}
	f.getAs("/v1/reservations", &answer)
	assert.Equal(t, []reserver.Drain{drain("first", web), drain("second", db)}, answer.Drains)
	f.reads = nil

	// Anybody may write labels and annotations: another one's nodes are not shown as this one's, and texts are bounded.
	add("first", "aaa", "false", strings.Repeat("long ", 10_000), reservations.Drained{Phase: "Available"})
	f.drained[4].Reservation.Annotations[v1alpha1.DrainedNodesAnnotation] = strings.Repeat(",", 200_000) + "x"
	all := drains("")
	require.Len(t, all, 3)
	assert.Equal(t, []string{"..."}, all[0].Nodes)
	assert.Len(t, all[0].Owners[0].WaitsFor, maxDrainText)
	assert.Equal(t, drain("first", web, job, late), all[1])
	for i := range 2 * maxDrainOwners {
		add("many", "team-c", fmt.Sprint(i), "", reservations.Drained{Phase: "Available"})
	}
	all = drains("?namespace=team-c")
	require.Len(t, all, 1)
	assert.Len(t, all[0].Owners, maxDrainOwners)
}

func TestDrainPlansThatMakeNoSense(t *testing.T) {
	f := newFixture(t, Limits{})
	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{}`:                            {400, "send those of 1 to 500 nodes"},
		`{"Nodes":["x"]}`:               {404, "kubectl get nodes"},
		`{"Nodes":["node-1","node-1"]}`: {400, "send every node once"},
		`{"Nodes":["Node 1"]}`:          {400, "Nodes[0]"},
		`{"Nodes":["node-1"],"SkipNamespaces":["a_b"]}`: {400, "SkipNamespaces[0]"},
		`{"Nodes":["node-1"],"Drain":"A b"}`:            {400, "Drain"},
		`{"Nodes":["node-1"],"Dry":true}`:               {400, "not known"},
	} {
		got := f.serve(http.MethodPost, "/v1/drain/plan", body)
		assert.Equal(t, want.status, got.Code, body)
		assert.Contains(t, got.Body.String(), want.says, body)
	}
	f.notReady = "it has just started"
	got := f.serve(http.MethodPost, "/v1/drain/plan", `{"Nodes":["node-1"]}`)
	assert.Equal(t, http.StatusServiceUnavailable, got.Code)
}

// A plan names pods and says what is free: it takes both rights, whether or not there is such a node.
func TestRightsToPlanADrain(t *testing.T) {
	f := newFixture(t, Limits{})
	f.onNode("secret-bound", "node-1", "1")
	for name, tc := range map[string]struct {
		may  func(right *authtest.Right) bool
		want int
	}{
		"both":         {func(*authtest.Right) bool { return true }, 200},
		"nodes alone":  {func(r *authtest.Right) bool { return r.Resource == "nodes" && r.Verb == "patch" }, 403},
		"pods alone":   {func(r *authtest.Right) bool { return r.Resource == "pods" }, 403},
		"of a team":    {func(r *authtest.Right) bool { return r.Resource == "nodes" || r.Namespace == "team-a" }, 403},
		"no right yet": {func(*authtest.Right) bool { return false }, 403},
	} {
		f.api.o.Rights = authtest.Checks(func(_ string, right *authtest.Right) bool { return tc.may(right) })
		for _, node := range []string{"node-1", "node-9"} {
			status, answer := f.askAs(&user.DefaultInfo{Name: name}, http.MethodPost, "/v1/drain/plan",
				reserver.DrainPlanRequest{Nodes: []string{node}})
			switch {
			case tc.want == 403:
				assert.Equal(t, 403, status, name)
				assert.NotContains(t, answer, "secret", name)
				assert.NotContains(t, answer, node, name)
			case node == "node-1":
				assert.Equal(t, 200, status, answer)
			default:
				assert.Equal(t, 404, status, answer)
			}
		}
	}
}
