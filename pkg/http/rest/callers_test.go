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
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// untilCaughtUp ends a watch when all there is was sent.
type untilCaughtUp struct {
	*httptest.ResponseRecorder
	end func()
}

func (w *untilCaughtUp) Flush() {
	if strings.Contains(w.Body.String(), `"CaughtUp":true`) {
		w.end()
	}
}

// askAs sends a request as somebody who may see some namespaces.
func (f *fixture) askAs(caller user.Info, method, path string, request any) (int, string) {
	f.t.Helper()
	router := httpjson.NewRouter()
	f.api.Register(router)
	data, err := json.Marshal(request)
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(auth.As(f.t.Context(), caller))
	defer cancel()
	w := &untilCaughtUp{httptest.NewRecorder(), cancel}
	r := httptest.NewRequest(method, path, bytes.NewReader(data)).WithContext(ctx)
	router.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// secrets fills node-1 with pods, slots and devices of a namespace that the caller may not see.
func secrets(f *fixture) {
	foreign := func(name string) *v1.Pod {
		pod := aPod("secret-"+name, "1", "1Gi")
		pod.Namespace, pod.Spec.SchedulerName = "secret-namespace", "secret-scheduler"
		return withPort(pod)
	}
	f.bind(foreign("bound"), "node-1")
	pod := foreign("waits")
	pod.Spec.Containers[0].Ports = nil
	require.Empty(f.t, f.reserve(body{SchedulerName: "secret-scheduler", Pods: []*v1.Pod{pod}, Nodes: []string{"node-1"}}).
		Error)
	placementtest.GPUs(f.ledger, "node-1", "gpu-0")
	f.ledger.ObserveSlot(ledger.Slot{
		Ref: ledger.SlotRef{Namespace: "secret-namespace", Name: "secret-reservation", Slot: "secret-slot"}, Node: "node-1",
		Request: f.Bring(foreign("waits")).Request, Policy: ledger.Once, Scheduler: "secret-scheduler",
		Devices: &ledger.DeviceRequest{
			Requests: placementtest.Claims(f.Bring(claiming(foreign("waits"), "any"))).Requests,
			Given:    "gpu-0",
		},
	})
}

// A caller that may see some namespaces gets nothing of the others but amounts, on every path.
func TestForeignNamesAreNotTold(t *testing.T) {
	f := newFixture(t, Limits{})
	secrets(f)
	f.api.o.About = func() reserver.DumpAnswer { return reserver.DumpAnswer{} }
	f.reads = map[string]bool{"team-a": true}
	own := aPod("own", "3", "1Gi")
	f.bind(aPod("neighbor", "500m", "1Gi"), "node-1")
	f.Bring(own)
	port := withPort(aPod("port", "100m", "1Gi"))
	spy := own.DeepCopy()
	spy.Namespace = "secret-namespace"
	reserve := func(pod *v1.Pod) body {
		return body{SchedulerName: testScheduler, Pods: []*v1.Pod{pod}, Nodes: []string{"node-1"}}
	}
	foreign := func(name string) body {
		pod := &v1.Pod{}
		pod.Namespace, pod.Name = "secret-namespace", name
		return reserve(pod)
	}
	posing := own.DeepCopy()
	posing.UID = "uid-secret-bound"
	without := func(gone reserver.GonePod) body {
		request := reserve(own)
		request.Without = []reserver.GonePod{gone}
		return request
	}
	tenant, admin := &user.DefaultInfo{Name: "alice"}, auth.Of(auth.Inside(t.Context()))
	const noPods = "list pods there"
	cases := map[string]struct {
		method, path string
		request      any
		want         int
		has          string // what the tenant sees
		told         bool   // that others are shown
	}{
		"nodes":               {"GET", "/v1/nodes", nil, 200, `"Free":500`, true},
		"node":                {"GET", "/v1/nodes/node-1", nil, 200, "neighbor", true},
		"allocations":         {"GET", "/v1/allocations", nil, 200, "neighbor", true},
		"allocations beyond":  {"GET", "/v1/allocations?namespace=secret-namespace", nil, 200, `"Allocations":[]`, true},
		"reservations":        {"GET", "/v1/reservations", nil, 200, `"Reservations":[]`, true},
		"explain":             {"GET", "/v1/explain?namespace=team-a&pod=own", nil, 200, "FitCount", false},
		"explain another's":   {"GET", "/v1/explain?namespace=secret-namespace&pod=secret-bound", nil, 403, noPods, true},
		"explain nobody's":    {"GET", "/v1/explain?namespace=other&pod=x", nil, 403, noPods, false},
		"watch":               {"GET", "/v1/watch", nil, 403, "may not", true},
		"dump":                {"GET", "/debug/ledger", nil, 403, "may not", true},
		"diff":                {"GET", "/debug/diff", nil, 403, "may not", true},
		"what if":             {"POST", "/v1/whatif", reserve(own), 200, "another namespace", true},
		"what if, a port":     {"POST", "/v1/whatif", reserve(port), 200, "is taken", true},
		"reserve":             {"POST", "/reserve", reserve(own), 200, "another namespace", true},
		"what if, as a spy":   {"POST", "/v1/whatif", reserve(spy), 403, noPods, true},
		"what if, another's":  {"POST", "/v1/whatif", foreign("secret-bound"), 403, noPods, true},
		"what if, nobody's":   {"POST", "/v1/whatif", foreign("secret-nobody"), 403, noPods, false},
		"what if, in its UID": {"POST", "/v1/whatif", reserve(posing), 403, "of its namespace", true},
		"what if, without another's": {
			"POST", "/v1/whatif", without(reserver.GonePod{Namespace: "secret-namespace", Name: "gone"}), 403, noPods, false,
		},
		"what if, without a UID": {
			"POST", "/v1/whatif", without(reserver.GonePod{UID: "uid-secret-bound"}), 403, "of its namespace", false,
		},
		"reserve as a spy": {"POST", "/reserve", reserve(spy), 200, "too little cpu", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status, answer := f.askAs(tenant, tc.method, tc.path, tc.request)
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
				_, answer = f.askAs(admin, tc.method, tc.path, tc.request)
				assert.Contains(t, answer, "secret-", "or the test shows nothing")
			}
		})
	}
	var node reserver.NodeAnswer
	f.getAs("/v1/nodes/node-1", &node)
	assert.Len(t, node.Allocations, 2)
	assert.Len(t, node.Slots, 2)
	for _, s := range node.Slots {
		assert.EqualValues(t, 1000, s.Slot.Requests["cpu"], "amounts are told")
	}
}

// getAs fetches a path as somebody who may see some namespaces, and decodes the answer, which is returned as text, too.
func (f *fixture) getAs(path string, answer any) string {
	f.t.Helper()
	status, text := f.askAs(&user.DefaultInfo{Name: "bob"}, http.MethodGet, path, nil)
	require.Equal(f.t, http.StatusOK, status, text)
	require.NoError(f.t, json.Unmarshal([]byte(text), answer))
	return text
}

// decidedFor sends a request as a caller.
func (f *fixture) decidedFor(caller, path string, request body) (code int, answer reserver.Answer) {
	f.t.Helper()
	code, text := f.askAs(&user.DefaultInfo{Name: caller}, http.MethodPost, path, request)
	require.NoError(f.t, json.Unmarshal([]byte(text), &answer), text)
	return code, answer
}

// What a caller has reserved nobody else gives back, by whatever name of a scheduler, and after a change of leaders
// neither. Who comes by plain HTTP may do everything, and what it keeps is nobody else's.
func TestOnlyTheCallerGivesBack(t *testing.T) {
	for name, inMemory := range map[string]bool{"an object": false, "in memory": true} {
		t.Run(name, func(t *testing.T) {
			d := newDurable(t)
			a, b, c := aPod("a", "1", "1Gi"), aPod("b", "1", "1Gi"), aPod("c", "1", "1Gi")
			granted := func(caller, path string, request body) {
				code, answer := d.decidedFor(caller, path, request)
				require.Equal(t, http.StatusOK, code, answer.Error)
				require.Empty(t, answer.Error)
			}
			request := gangOf("node-1 node-2", a, b)
			backs := []body{back(a, b), back(nameOnly(a)), gangOf("node-2", b), back(c)}
			if inMemory {
				request.Durable = ptr.To(false)
			} else {
				request.Name = "job"
				backs = append(backs, body{SchedulerName: testScheduler, Reservation: "team-a/job"})
			}
			granted("alice", "/reserve", request)
			require.Empty(t, d.reserve(gangOf("node-3", c)).Error)
			refused := func() {
				t.Helper()
				before := d.ledger.Revision()
				for _, request := range backs {
					code, answer := d.decidedFor("bob", "/unreserve", request)
					assert.Equal(t, http.StatusForbidden, code)
					assert.Contains(t, answer.Error, "reserved by another caller")
				}
				assert.Equal(t, before, d.ledger.Revision())
			}
			refused()
			if !inMemory {
				d.restart()
				d.forget()
				refused()
			} else {
				before := d.ledger.Revision()
				code, answer := d.decidedFor("bob", "/reserve", memoryOnly("node-1", aPod("a", "2", "1Gi")))
				assert.Equal(t, http.StatusOK, code)
				assert.Contains(t, answer.Error, "belongs to another scheduler or caller")
				assert.Equal(t, before, d.ledger.Revision())
			}
			granted("alice", "/unreserve", back(a))
			require.Empty(t, d.unreserve(back(b)).Error, "by plain HTTP")
		})
	}
}

// A caller that may not reserve what a request names gets 403, and why, whatever else the request says. FailedPods
// has the pods, for clients of kube-globalreserve.
func TestWhoMayNotReserveIsTold403(t *testing.T) {
	theirs, foreign := aPod("theirs", "1", "1Gi"), aPod("foreign", "1", "1Gi")
	theirs.Spec.SchedulerName, foreign.Namespace = "owner", "team-b"
	const notTheirs = `one of scheduler "owner": "somebody of batch-scheduler" may not act for scheduler "owner"`
	for want, pod := range map[string]*v1.Pod{
		"": aPod("own", "1", "1Gi"), notTheirs: theirs, "may not reserve in namespace team-b": foreign,
	} {
		f := newFixture(t, Limits{})
		f.reserves = map[string]bool{"team-a": true}
		f.Bring(pod)
		for range 2 { // a renewal is a reservation
			code, told := f.decidedFor("somebody of "+testScheduler, "/reserve",
				gangOf("node-1 node-1", aPod("first", "1", "1Gi"), pod))
			kept, _ := f.ledger.Slots()
			if want == "" {
				require.Equal(t, http.StatusOK, code)
				require.Len(t, kept, 2)
				continue
			}
			require.Equal(t, http.StatusForbidden, code)
			assert.Contains(t, told.Error, want)
			assert.Len(t, told.FailedPods, 2)
			assert.Empty(t, kept, "nothing of it is reserved")
		}
	}
}

// An answer is repeated for the caller that got it.
func TestRepeatsAreTheCallers(t *testing.T) {
	for name, restart := range map[string]bool{"the same server": false, "another one": true} {
		t.Run(name, func(t *testing.T) {
			d := newDurable(t)
			request := gangOf("node-1", aPod("a", "1", "1Gi"))
			request.RequestID = "one"
			code, first := d.decidedFor("alice", "/reserve", request)
			require.Equal(t, http.StatusOK, code, first.Error)
			if restart {
				d.restart()
				d.forget()
			}
			code, other := d.decidedFor("bob", "/reserve", request)
			assert.Equal(t, http.StatusConflict, code, other)
			code, again := d.decidedFor("alice", "/reserve", request)
			assert.Equal(t, http.StatusOK, code)
			assert.Equal(t, first.Reservation, again.Reservation)
			assert.Empty(t, again.Error)
		})
	}
}
