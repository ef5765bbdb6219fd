package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/identity"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// untilCaughtUp ends a watch when all there is was told.
type untilCaughtUp struct {
	*httptest.ResponseRecorder
	end func()
}

func (w *untilCaughtUp) Flush() {
	if told := w.Body.String(); strings.Contains(told, "event: bookmark\n") || strings.Contains(told, `"CaughtUp":true`) {
		w.end()
	}
}

// ask sends a request as somebody who may see some namespaces.
func (f *fixture) ask(caller user.Info, method, path string, request any, accept ...string) (int, string) {
	f.t.Helper()
	router := httpjson.NewRouter()
	f.api.Register(router)
	data, err := json.Marshal(request)
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(identity.As(f.t.Context(), caller))
	defer cancel()
	w := &untilCaughtUp{httptest.NewRecorder(), cancel}
	r := httptest.NewRequest(method, path, bytes.NewReader(data)).WithContext(ctx)
	r.Header["Accept"] = accept
	router.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// secrets fills node-1 with pods, slots and devices of a namespace that the caller may not see.
func secrets(f *fixture) {
	foreign := func(name string) *v1.Pod {
		pod := aPod("secret-"+name, "1", "1Gi")
		pod.Namespace, pod.Spec.SchedulerName = "secret-namespace", "secret-scheduler"
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, ContainerPort: 80, Protocol: v1.ProtocolTCP}}
		return pod
	}
	f.bind(foreign("bound"), "node-1")
	pod := foreign("waits")
	pod.Spec.Containers[0].Ports = nil
	require.Empty(f.t, f.reserve(body{SchedulerName: "secret-scheduler", Pods: []*v1.Pod{pod}, Nodes: []string{"node-1"}}).Error)
	f.ledger.ObserveDevices("node-1", []devices.Device{{Name: "gpu", Resource: gpu, ID: "gpu-0"}})
	f.ledger.ObserveSlot(ledger.Slot{
		Ref: ledger.SlotRef{Namespace: "secret-namespace", Name: "secret-reservation", Slot: "secret-slot"}, Node: "node-1",
		Request: f.see(foreign("waits")).Request, Policy: ledger.Once, Scheduler: "secret-scheduler",
		Devices: &ledger.DeviceRequest{Requests: anyGPU{f.t}.Devices(f.see(claiming(foreign("waits"), "any"))).Requests, Given: "gpu-0"},
	})
}

// Who may see some namespaces is told nothing of the others but amounts, on every path.
func TestForeignNamesAreNotTold(t *testing.T) {
	f := newFixture(t, Limits{})
	secrets(f)
	f.api.about = func() reserver.DumpAnswer { return reserver.DumpAnswer{} }
	f.reads = map[string]bool{"team-a": true}
	own := aPod("own", "3", "1Gi")
	f.bind(aPod("neighbor", "500m", "1Gi"), "node-1")
	f.see(own)
	port := aPod("port", "100m", "1Gi")
	port.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, ContainerPort: 80, Protocol: v1.ProtocolTCP}}
	spy := own.DeepCopy()
	spy.Namespace = "secret-namespace"
	reserve := func(pod *v1.Pod) body {
		return body{SchedulerName: testScheduler, Pods: []*v1.Pod{pod}, Nodes: []string{"node-1"}}
	}
	tenant, admin := &user.DefaultInfo{Name: "alice"}, identity.Of(identity.Inside(t.Context()))
	cases := map[string]struct {
		method, path string
		request      any
		want         int
		has          string // what the tenant sees
		told         bool   // that others are told
	}{
		"nodes":              {"GET", "/v1/nodes", nil, 200, `"Free":500`, true},
		"node":               {"GET", "/v1/nodes/node-1", nil, 200, "neighbor", true},
		"allocations":        {"GET", "/v1/allocations", nil, 200, "neighbor", true},
		"allocations beyond": {"GET", "/v1/allocations?namespace=secret-namespace", nil, 200, `"Allocations":[]`, true},
		"reservations":       {"GET", "/v1/reservations", nil, 200, `"Reservations":[]`, true},
		"explain":            {"GET", "/v1/explain?namespace=team-a&pod=own", nil, 200, "FitCount", false},
		"explain another's":  {"GET", "/v1/explain?namespace=secret-namespace&pod=secret-bound", nil, 403, "list pods there", true},
		"explain nobody's":   {"GET", "/v1/explain?namespace=other&pod=x", nil, 403, "list pods there", false},
		"watch":              {"GET", "/v1/watch", nil, 403, "may not", true},
		"dump":               {"GET", "/debug/ledger", nil, 403, "may not", true},
		"what if":            {"POST", "/v1/whatif", reserve(own), 200, "another namespace", true},
		"what if, a port":    {"POST", "/v1/whatif", reserve(port), 200, "is taken", true},
		"reserve":            {"POST", "/reserve", reserve(own), 200, "another namespace", true},
		"what if, as a spy":  {"POST", "/v1/whatif", reserve(spy), 200, "too little cpu", true},
		"reserve as a spy":   {"POST", "/reserve", reserve(spy), 200, "too little cpu", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status, answer := f.ask(tenant, tc.method, tc.path, tc.request)
			assert.Equal(t, tc.want, status, answer)
			assert.Contains(t, answer, tc.has)
			quoted := []string{"secret-bound", "secret-waits", "secret-reservation", "secret-slot", "secret-scheduler"}
			if tc.path == "/v1/explain?namespace=secret-namespace&pod=secret-bound" {
				quoted = quoted[1:] // what it asked for itself
			}
			for _, secret := range quoted {
				assert.NotContains(t, answer, secret)
			}
			if tc.told {
				_, answer = f.ask(admin, tc.method, tc.path, tc.request)
				assert.Contains(t, answer, "secret-", "or the test shows nothing")
			}
		})
	}
	status, answer := f.ask(tenant, http.MethodGet, "/v1/watch", nil, reserver.BatchMediaType)
	assert.Equal(t, http.StatusForbidden, status)
	assert.NotContains(t, answer, "secret-")
	status, answer = f.ask(admin, http.MethodGet, "/v1/watch", nil, reserver.BatchMediaType)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, answer, "secret-")
	status, answer = f.ask(tenant, http.MethodGet, "/v1/nodes/node-1", nil)
	require.Equal(t, http.StatusOK, status)
	var node reserver.NodeAnswer
	require.NoError(t, json.Unmarshal([]byte(answer), &node))
	assert.Len(t, node.Allocations, 2)
	assert.Len(t, node.Slots, 2)
	for _, s := range node.Slots {
		assert.EqualValues(t, 1000, s.Slot.Requests["cpu"], "amounts are told")
	}
}
