package kubectl

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// reservationsInTests are in the fake cluster of the golden tests.
func reservationsInTests() []runtime.Object {
	return append([]runtime.Object{webRoom(), train(), fresh(), ended(), forever()}, devicesInTests()...)
}

// TestGoldenObjects compares what the commands for Reservation objects print.
func TestGoldenObjects(t *testing.T) {
	for name, args := range map[string][]string{
		"list":                     {"list"},
		"list wide":                {"list", "-A", "-o", "wide"},
		"list table":               {"ls", "-n", "batch", "-o", "table", "--no-headers"},
		"list yaml":                {"list", "-n", "batch", "-o", "yaml"},
		"list json":                {"list", "-n", "batch", "-o", "json"},
		"list name":                {"list", "-A", "-o", "name"},
		"list empty":               {"list", "-n", "nowhere"},
		"list of a context":        {"list", "--context", "two"},
		"devices":                  {"devices"},
		"devices wide":             {"devices", "-o", "wide"},
		"devices yaml":             {"devices", "gpu-a", "-o", "yaml"},
		"devices json":             {"devices", "--node", "node-2", "-o", "json"},
		"devices name":             {"devices", "--resource", "nvidia.com/gpu", "-o", "name"},
		"devices free":             {"devices", "--free", "--no-headers"},
		"devices none":             {"devices", "--node", "node-9"},
		"devices missing":          {"devices", "gpu-a", "gpu-z"},
		"describe":                 {"describe", "web-room"},
		"describe pending":         {"describe", "train", "-n", "batch"},
		"describe several":         {"describe", "fresh", "nobody", "ended", "forever"},
		"delete":                   {"delete", "web-room", "fresh"},
		"delete name":              {"rm", "web-room", "-o", "name"},
		"delete all":               {"delete", "--all"},
		"delete missing":           {"delete", "nobody", "fresh"},
		"delete ignores missing":   {"delete", "nobody", "--ignore-not-found"},
		"create":                   {"create", "new", "--cpu", "4", "--memory", "8Gi"},
		"create name":              {"create", "new", "--cpu", "4", "-o", "name"},
		"create table":             {"create", "new", "--cpu", "500m", "--replicas", "3", "-o", "wide"},
		"create existing":          {"create", "fresh", "--cpu", "4"},
		"create dry run":           {"create", "new", "--cpu", "4", "--dry-run=client"},
		"create server dry run":    {"create", "new", "--cpu", "4", "--dry-run=server"},
		"create dry run of little": {"create", "new", "--cpu", "0", "--dry-run=client", "-o", "yaml", "-n", "batch"},
		"create dry run of all": {
			"create", "train", "--cpu", "8", "--memory", "8Gi", "--resource", "nvidia.com/gpu=2", "--replicas", "2",
			"--node", "gpu-1", "--ttl", "90m", "--index", "train", "--policy", "restricted", "--preemptible", "--priority", "0",
			"--scheduler", "batch-scheduler", "--labels", "team=ml,stage=prod", "--dry-run=client", "-o", "yaml",
		},
		"create dry run with a selector": {
			"create", "buffer", "--memory", "1Gi", "--selector", "app=web,tier in (a,b)", "--node-selector", "zone=a", "--ttl", "0s",
			"--dry-run=client", "-o", "json",
		},
		"create dry run with a controller": {"create", "web", "--cpu", "1500m", "--controller", "deploy/web", "--dry-run=client", "-o", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, reservationsInTests()...)
			r.eventsOfWebRoom()
			r.requireGolden(name, r.run(args...), args)
		})
	}
}

// eventsOfWebRoom adds two events, one of each API for events. The fake does not select by field, so
// only their own reservation has any.
func (r *rig) eventsOfWebRoom() {
	series := &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(now.Add(-30 * time.Second))}
	list := &corev1.EventList{Items: []corev1.Event{
		{Type: "Normal", Reason: "SlotConsumed", Message: "pod web-5d-x uses slot web-room-0", EventTime: metav1.NewMicroTime(now), Series: series},
		{Type: "Normal", Reason: "Available", Message: "all slots are held\n", LastTimestamp: ago(time.Minute)},
	}}
	r.kube.PrependReactor("list", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		selector := action.(clienttesting.ListAction).GetListRestrictions().Fields
		assert.Equal(r.t, "Reservation", mustFind(selector.RequiresExactMatch("involvedObject.kind")))
		if mustFind(selector.RequiresExactMatch("involvedObject.uid")) == "uid-web" {
			return true, list, nil
		}
		return true, &corev1.EventList{}, nil
	})
}

func mustFind(value string, found bool) string {
	if !found {
		return "<not selected by>"
	}
	return value
}

// TestGoldenServer compares what the commands for the server's routes print.
func TestGoldenServer(t *testing.T) {
	for name, args := range map[string][]string{
		"nodes":               {"nodes"},
		"nodes wide":          {"nodes", "-o", "wide"},
		"nodes yaml":          {"nodes", "-o", "yaml"},
		"nodes json":          {"nodes", "-o", "json"},
		"nodes name":          {"nodes", "-o", "name"},
		"nodes one":           {"nodes", "node-1"},
		"nodes one wide":      {"nodes", "node-1", "-o", "wide"},
		"nodes one name":      {"nodes", "node-1", "-o", "name"},
		"nodes unknown":       {"nodes", "node-77"},
		"nodes overcommitted": {"nodes", "--overcommitted"},
		"explain":             {"explain", "web-1"},
		"explain wide":        {"why", "pod/web-1", "-o", "wide"},
		"explain yaml":        {"explain", "web-1", "-o", "yaml"},
		"explain json":        {"explain", "web-1", "-o", "json"},
		"explain reserved":    {"explain", "worker-0"},
		"explain with room":   {"explain", "web-2"},
		"explain no nodes":    {"explain", "web-3"},
		"explain devices":     {"explain", "trainer"},
		"explain unknown":     {"explain", "web-9"},
		"pods":                {"pods"},
		"pods wide":           {"pods", "-A", "-o", "wide"},
		"pods yaml":           {"pods", "--state", "reserved", "-o", "yaml"},
		"pods json":           {"pods", "--state", "Reserved", "-o", "json"},
		"pods name":           {"pods", "-o", "name"},
		"pods summary":        {"pods", "-A", "--summary"},
		"pods none":           {"pods", "--scheduler", "other", "--node", "node-1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.routesInTests()
			args := r.atServer(args...)
			r.requireGolden(name, r.run(args...), args)
			assert.Empty(t, r.forwarded, "--server needs no forwarded port")
		})
	}
}

func (r *rig) routesInTests() {
	all := nodeAccounts()
	found := claims()
	missing, err := json.Marshal(map[string]any{"Error": `pod "default/web-9" is not known: there is no such pod`, "Status": 404})
	require.NoError(r.t, err)
	reserved := reserver.ExplainAnswer{
		Namespace: "default", Pod: "worker-0", Scheduler: "batch-scheduler", State: "Reserved", Node: "gpu-1", ExpiresAt: now.Add(45 * time.Second), Reservation: "batch/train/worker",
		Requests: reserver.Amounts{"cpu": 2000}, Message: `room for the pod is reserved on node "gpu-1"`,
	}
	withRoom := reserver.ExplainAnswer{
		Namespace: "default", Pod: "web-2", Scheduler: "default-scheduler", State: "Pending", Requests: reserver.Amounts{},
		NodeCount: 12, FitCount: 5, FitExamples: []string{"node-1", "node-2"}, Message: "there is room for the pod on 5 of 12 nodes",
		Refusals: []reserver.RefusalGroup{{Reason: "HostPort", Nodes: 7, Examples: []string{"node-3"}}},
	}
	r.routes = map[string]any{
		// Two pages.
		"/v1/nodes?limit=1000":                    reserver.NodesAnswer{Revision: 76, Nodes: all[:2], Continue: "node-1"},
		"/v1/nodes?continue=node-1&limit=1000":    reserver.NodesAnswer{Revision: 77, Nodes: all[2:]},
		"/v1/nodes?limit=1000&overcommitted=true": reserver.NodesAnswer{Revision: 77},
		"/v1/nodes/node-1":                        reserver.NodeAnswer{Revision: 77, Node: all[1], Claims: []reserver.Claim{found[0], found[2]}, Slots: slots()},
		"/v1/nodes/node-77":                       refusal{http.StatusNotFound, `{"Error":"node \"node-77\" is not in the ledger","Status":404}`},
		"/v1/explain?namespace=default&pod=web-1": pendingPod(),
		"/v1/explain?namespace=default&pod=web-2": withRoom,
		"/v1/explain?namespace=default&pod=trainer": reserver.ExplainAnswer{
			Namespace: "default", Pod: "trainer", State: "Pending", NodeCount: 2,
			Message:  "there is no room for the pod on any of 2 nodes; on the closest, its claim is in use",
			Refusals: []reserver.RefusalGroup{{Reason: "DeviceClaimInUse", Nodes: 2, Examples: []string{"node-1", "node-2"}}},
			Closest:  &reserver.ClosestNode{Node: "node-1", Missing: []reserver.MissingAmount{}},
		},
		"/v1/explain?namespace=default&pod=web-3": reserver.ExplainAnswer{
			Namespace: "default", Pod: "web-3", State: "Pending", Message: "there are no nodes in the ledger",
		},
		"/v1/explain?namespace=default&pod=web-9":                             refusal{http.StatusNotFound, string(missing)},
		"/v1/explain?namespace=default&pod=worker-0":                          reserved,
		"/v1/claims?limit=1000&namespace=default":                             reserver.ClaimsAnswer{Revision: 77, Claims: found},
		"/v1/claims?limit=1000":                                               reserver.ClaimsAnswer{Revision: 77, Claims: found},
		"/v1/claims?limit=1000&namespace=default&state=Reserved":              reserver.ClaimsAnswer{Revision: 77, Claims: found[1:2]},
		"/v1/claims?limit=1000&namespace=default&node=node-1&scheduler=other": reserver.ClaimsAnswer{Revision: 77},
	}
}

// TestErrors shows what people are told when something is wrong around the commands.
func TestErrors(t *testing.T) {
	reservations := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "reservations"}
	missing := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", reservations, "x", "404 page not found", 0, true)
	forbidden := apierrors.NewForbidden(reservations, "x", nil)
	for name, tt := range map[string]struct {
		fail error
		args []string
		code int
		says string
	}{
		"no definition, list":   {missing, []string{"list"}, ExitFailed, "kubectl apply -k manifests/crd"},
		"no definition, create": {missing, []string{"create", "x", "--cpu", "1"}, ExitFailed, "does not know Reservation objects"},
		"no definition, delete": {missing, []string{"delete", "x", "--ignore-not-found"}, ExitFailed, "does not know Reservation objects"},
		"forbidden":             {forbidden, []string{"create", "x", "--cpu", "1"}, ExitFailed, "you may not do that"},
		"forbidden, describe":   {forbidden, []string{"describe", "x"}, ExitFailed, "you may not do that"},
		"unauthorized":          {apierrors.NewUnauthorized("no"), []string{"list"}, ExitFailed, "renew the credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.reservations.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tt.fail })
			got := r.run(tt.args...)
			assert.Equal(t, tt.code, got.code)
			assert.Contains(t, got.err, tt.says)
			assert.True(t, strings.HasPrefix(got.err, "error: "), got.err)
			assert.Equal(t, 1, strings.Count(got.err, "\n"), "one line: %s", got.err)
		})
	}
}

// TestServerErrors shows what people are told when the server does not answer as it should.
func TestServerErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		answer any
		code   int
		says   string
	}{
		"not ready":         {refusal{http.StatusServiceUnavailable, `{"Error":"the ledger is not synced yet","Status":503}`}, ExitUnreachable, "cannot answer now: the ledger is not synced yet"},
		"old server":        {refusal{http.StatusNotFound, "404 page not found"}, ExitFailed, "has no /v1/nodes: it is older"},
		"not GlobalReserve": {refusal{http.StatusOK, "<html>hello</html>"}, ExitFailed, "does not speak as GlobalReserve does"},
		"broken":            {refusal{http.StatusInternalServerError, strings.Repeat("oh no\n", 100)}, ExitFailed, "with status 500: oh no oh no"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.routes["/v1/nodes?limit=1000"] = tt.answer
			got := r.run(r.atServer("nodes")...)
			assert.Equal(t, tt.code, got.code)
			assert.Contains(t, got.err, tt.says)
			assert.Less(t, len(got.err), 500)
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		r := newRig(t)
		r.server.Close()
		got := r.run(r.atServer("nodes")...)
		assert.Equal(t, ExitUnreachable, got.code)
		assert.Contains(t, got.err, "the GlobalReserve server does not answer at http://server")
		assert.Contains(t, got.err, "check --server")
	})
}

// TestVersion prints the plugin's version even where the server does not answer.
func TestVersion(t *testing.T) {
	r := newRig(t)
	got := r.run("version", "--client")
	assert.Equal(t, ExitOK, got.code)
	assert.Contains(t, got.out, "Client: globalreserve ")
	assert.NotContains(t, got.out, "Server")
	assert.Empty(t, r.asked)

	r.routes["/version"] = map[string]string{"gitVersion": "v9.8.7"}
	got = r.run(r.atServer("version")...)
	assert.Equal(t, ExitOK, got.code)
	assert.Contains(t, got.out, "Server: globalreserve v9.8.7")

	got = r.run(r.atServer("version", "-o", "json")...)
	assert.Contains(t, got.out, `"gitVersion": "v9.8.7"`)

	delete(r.routes, "/version")
	got = r.run(r.atServer("version")...)
	assert.Equal(t, ExitFailed, got.code)
	assert.Contains(t, got.out, "Client: globalreserve ")
}
