package rest

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// Nobody who looks at FailedPods alone takes a server that decides nothing for one that
// has granted everything.
func TestNotReady(t *testing.T) {
	for _, path := range []string{"/reserve", "/unreserve"} {
		for _, noKind := range []bool{false, true} {
			bubble(t, func(t *testing.T, d *durable) {
				d.NoKind, d.notReady = noKind, "the server has not read all nodes yet"
				request := gangOf("node-1 node-1", aPod("a", "1", "1Gi"), aPod("b", "1", "1Gi"))
				request.RequestID = "1"
				w := d.serve(path, request)
				assert.Equal(t, http.StatusServiceUnavailable, w.Code)
				assert.Equal(t, "1", w.Header().Get("Retry-After"))
				var answer reserver.Answer
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
				assert.Equal(t, []string{"a", "b"}, answer.FailedPods)
				assert.Equal(t, d.notReady, answer.Error)
				assert.Empty(t, d.slots())
				assert.Empty(t, d.store.All())

				d.notReady = ""
				code, answer := d.ask(path, request)
				assert.Equal(t, http.StatusOK, code, "it is not kept")
				assert.Empty(t, answer.Error)
			})
		}
	}
}

// The answer says whether the capacity outlives the server.
func TestAnswersSayWhatIsDurable(t *testing.T) {
	for noKind, want := range map[bool]string{true: `"Durable":false`, false: `"Durable":true`} {
		bubble(t, func(t *testing.T, d *durable) {
			d.NoKind = noKind
			pod := aPod("a", "1", "1Gi")
			for name, w := range map[string]*httptest.ResponseRecorder{
				"granted":  d.serve("/reserve", gangOf("node-1", pod)),
				"refused":  d.serve("/reserve", gangOf("node-1", aPod("large", "5", "1Gi"))),
				"again":    d.serve("/reserve", gangOf("node-1", pod)),
				"too late": d.serve("/reserve", body{SchedulerName: "s", Pods: []*v1.Pod{pod}, Nodes: []string{"node-1"}, MinRevision: 1 << 60}),
			} {
				assert.Contains(t, w.Body.String(), want, name)
			}
			assert.Contains(t, d.serve("/unreserve", gangOf("node-1", pod)).Body.String(), want)
		})
	}
}

// What the API server does not have, or cannot be asked about, is named, and may be
// asked for again.
func TestPodsThatAreNotThere(t *testing.T) {
	tests := map[string]struct {
		prepare func(d *durable)
		pod     *v1.Pod
		reason  string
		message string
	}{
		"no such pod":     {func(*durable) {}, nameOnly(aPod("x", "1", "1Gi")), "PodUnknown", "create it first"},
		"no such UID":     {func(d *durable) { d.API.Put(aPod("x", "1", "1Gi")) }, withUID("x", "other"), "PodGone", "another UID"},
		"not to be read":  {func(d *durable) { d.API.Answer(0, errors.New("no route")) }, nameOnly(aPod("x", "1", "1Gi")), "PodUnknown", "try again: no route"},
		"read too slowly": {func(d *durable) { d.API.Answer(time.Minute, nil) }, nameOnly(aPod("x", "1", "1Gi")), "PodUnknown", "try again"},
		"not countable":   {func(d *durable) { d.API.Put(negative("x")) }, nameOnly(aPod("x", "1", "1Gi")), "PodInvalid", "spec.containers[0]"},
		"not countable, and brought by the watch": {func(d *durable) { d.see(negative("x")) }, withUID("x", "uid-x"), "PodInvalid", "spec.containers[0]"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, d *durable) {
				tc.prepare(d)
				request := gangOf("node-1 node-1", aPod("a", "1", "1Gi"), tc.pod)
				request.RequestID, request.Mode = "1", "Partial"
				answer := d.reserve(request)
				assert.Equal(t, []string{"x"}, answer.FailedPods)
				require.Len(t, answer.Rejections, 1)
				assert.Equal(t, tc.reason, answer.Rejections[0].Reason)
				assert.Contains(t, answer.Rejections[0].Message, tc.message)
				if tc.reason != "PodUnknown" {
					return
				}
				d.API.Answer(0, nil)
				d.API.Put(aPod("x", "1", "1Gi"))
				assert.Empty(t, d.reserve(request).FailedPods, "the refusal is not kept for repeats")
			})
		})
	}
}

func withUID(name, uid string) *v1.Pod {
	pod := nameOnly(aPod(name, "1", "1Gi"))
	pod.UID = types.UID(uid)
	return pod
}

// negative is a pod whose request cannot be counted.
func negative(name string) *v1.Pod { return aPod(name, "-1", "1Gi") }
