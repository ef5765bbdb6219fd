package kubectl

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// TestGolden runs the command that each file of testdata begins with, and compares all that it prints.
// Those with --ledger-url speak to a fake server, which needs no forwarded port, and have no cluster.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".golden"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			r := newRig(t, append(devicesInTests(), fresh())...)
			r.routesInTests()
			command, _, _ := strings.Cut(string(want), "\n")
			args := r.words(strings.TrimPrefix(command, "$ kubectl reserve "))
			got := command + "\n" + r.run(args...).String()
			assert.Empty(t, r.forwarded)
			if os.Getenv("UPDATE_GOLDEN") != "" {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
			}
			require.Equal(t, string(want), got, "UPDATE_GOLDEN=1 writes the files anew")
		})
	}
}

// words splits a command line at spaces; a word may have some between single quotes.
func (r *rig) words(line string) []string {
	var words []string
	for i, part := range strings.Split(strings.ReplaceAll(line, "http://server", r.server.URL), "'") {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}

func (r *rig) routesInTests() {
	all := nodeAccounts()
	found := allocations()
	reserved := reserver.ExplainAnswer{
		Namespace: "default", Pod: "worker-0", Scheduler: "batch-scheduler", State: "Reserved", Node: "gpu-1",
		ExpiresAt: now.Add(45 * time.Second), Reservation: "batch/train/worker",
		Requests: reserver.Amounts{"cpu": 2000}, Message: `capacity for the pod is reserved on node "gpu-1"`,
	}
	withCapacity := reserver.ExplainAnswer{
		Namespace: "default", Pod: "web-2", Scheduler: "default-scheduler", State: "Pending", Requests: reserver.Amounts{},
		NodeCount: 12, FitCount: 5, FitExamples: []string{"node-1", "node-2"},
		Message:  "there is capacity for the pod on 5 of 12 nodes",
		Refusals: []reserver.RefusalGroup{{Reason: "HostPort", Nodes: 7, Examples: []string{"node-3"}}},
	}
	r.routes = map[string]any{
		// Two pages.
		"/v1/nodes?limit=1000":                    reserver.NodesAnswer{Revision: 76, Nodes: all[:2], Continue: "node-1"},
		"/v1/nodes?continue=node-1&limit=1000":    reserver.NodesAnswer{Revision: 77, Nodes: all[2:]},
		"/v1/nodes?limit=1000&overcommitted=true": reserver.NodesAnswer{Revision: 77},
		"/v1/nodes/node-1": reserver.NodeAnswer{
			Revision: 77, Node: all[1], Allocations: found[:2],
			Slots: slots(), DRADevices: draDevices(),
		},
		"/v1/nodes/node-77": refusal{
			http.StatusNotFound,
			`{"Error":"node \"node-77\" is not in the ledger","Status":404}`,
		},
		"/v1/explain?namespace=default&pod=web-1": pendingPod(),
		"/v1/explain?namespace=default&pod=web-2": withCapacity,
		"/v1/explain?namespace=default&pod=trainer": reserver.ExplainAnswer{
			Namespace: "default", Pod: "trainer", State: "Pending", NodeCount: 2,
			Message:  "there is no capacity for the pod on any of 2 nodes; on the closest, its claim is in use",
			Refusals: []reserver.RefusalGroup{{Reason: "DeviceClaimInUse", Nodes: 2, Examples: []string{"node-1", "node-2"}}},
			Closest:  &reserver.ClosestNode{Node: "node-1", Missing: []reserver.MissingAmount{}},
		},
		"/v1/explain?namespace=default&pod=web-9": refusal{
			http.StatusNotFound,
			`{"Error":"pod \"default/web-9\" is not known: there is no such pod","Status":404}`,
		},
		"/v1/explain?namespace=default&pod=worker-0": reserved,
		"/v1/explain?namespace=default&pod=train-1":  memberOfGang(),
		"/v1/gangs?limit=1000&namespace=default":     reserver.GangsAnswer{Revision: 77, Gangs: gangsInTests()[1:]},
		"/v1/pending?limit=1000&namespace=default": reserver.PendingAnswer{Revision: 77, Pods: []reserver.PendingPod{
			{
				Since: now.Add(-time.Hour), LastRefused: now, Times: 12, Path: "filter", LastReason: "InsufficientResource",
				WaitsFor: "capacity", Explanation: pendingPod(),
			},
			{
				Since: now.Add(-time.Minute), LastRefused: now, Times: 1, Path: "bind", LastReason: "InsufficientResource",
				WaitsFor: "scheduler", Explanation: withCapacity,
			},
		}},
		"/v1/pending?limit=1000&waits=node": reserver.PendingAnswer{
			Revision: 77, Pods: []reserver.PendingPod{},
			Continue: "1/u",
		},
		"/v1/pending?continue=1%2Fu&limit=1000&waits=node": reserver.PendingAnswer{Revision: 78, Needs: []reserver.NodeNeed{
			{Namespace: "default", Pod: "web-1", Count: 1, Requests: reserver.Amounts{"cpu": 64000}, NewNode: true},
		}},
		"/v1/gangs?limit=1000": reserver.GangsAnswer{
			Revision: 76, Gangs: gangsInTests()[:2],
			Continue: "default/volcano/train",
		},
		"/v1/gangs?continue=default%2Fvolcano%2Ftrain&limit=1000": reserver.GangsAnswer{
			Revision: 77,
			Gangs:    gangsInTests()[2:],
		},
		"/v1/allocations?limit=1000&namespace=default": reserver.AllocationsAnswer{
			Revision:    77,
			Allocations: found,
		},
		"/v1/allocations?limit=1000": reserver.AllocationsAnswer{
			Revision:    77,
			Allocations: found,
		},
		"/v1/reservations?limit=1000&namespace=default": inMemory(),
		"/v1/reservations?limit=1000":                   inMemory(),
		"/v1/reservations?limit=1000&namespace=default&node=node-1&scheduler=other": reserver.ReservationsAnswer{
			Revision: 77,
		},
		"/v1/allocations?limit=1000&namespace=default&node=node-1&scheduler=other": reserver.AllocationsAnswer{
			Revision: 77,
		},
	}
}

// TestUnauthorized shows the errors of people whose credentials do not count; other errors of the
// cluster are shown in test/e2e/kubectl.
func TestUnauthorized(t *testing.T) {
	r := newRig(t)
	r.reservations.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewUnauthorized("no")
	})
	got := r.run("devices")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.err,
		": the cluster does not know who you are: no: renew the credentials")
}

// TestServerErrors shows the errors when the server does not answer as it should.
func TestServerErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		answer any
		code   int
		says   string
	}{
		"not ready": {
			refusal{http.StatusServiceUnavailable, `{"Error":"the ledger is not synced yet","Status":503}`},
			exitUnreachable, ": the ledger is not synced yet: check",
		},
		"old server": {
			refusal{http.StatusNotFound, "404 page not found"},
			exitFailed,
			"no GlobalReserve, or another version of it",
		},
		"not GlobalReserve": {refusal{http.StatusOK, "<html>hello</html>"}, exitUnreachable, "is not one of GlobalReserve"},
		"no credentials": {
			refusal{http.StatusUnauthorized, `{"Error":"who are you?","Status":401}`},
			exitFailed,
			"who are you?: give --ledger-token, or --ledger-client-certificate and",
		},
		"not allowed": {
			refusal{http.StatusForbidden, `{"Error":"ask for a role","Status":403}`},
			exitFailed,
			"error: ask for a role\n",
		},
		"broken": {
			refusal{http.StatusInternalServerError, strings.Repeat("oh no\n", 100)},
			exitUnreachable,
			"has status 500 Internal Server Error",
		},
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
}

// TestVersion prints the plugin's version even where the server does not answer.
func TestVersion(t *testing.T) {
	r := newRig(t)
	got := r.run("version", "--client")
	assert.Equal(t, exitOK, got.code)
	assert.Contains(t, got.out, "Client: globalreserve ")
	assert.NotContains(t, got.out, "Server")
	assert.Empty(t, r.asked)

	r.routes["/version"] = map[string]string{"gitVersion": "v9.8.7"}
	got = r.run(r.atServer("version")...)
	assert.Equal(t, exitOK, got.code)
	assert.Contains(t, got.out, "Server: globalreserve v9.8.7")

	got = r.run(r.atServer("version", "-o", "json")...)
	assert.Contains(t, got.out, `"gitVersion": "v9.8.7"`)

	delete(r.routes, "/version")
	got = r.run(r.atServer("version")...)
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.out, "Client: globalreserve ")
}
