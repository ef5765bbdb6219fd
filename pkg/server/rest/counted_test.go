package rest

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// What was granted is told in amounts, and where that may not be what was meant, in words.
func TestWhatWasCountedIsTold(t *testing.T) {
	const asks = `"resources":{"requests":{"cpu":"1","memory":"1Gi"}}`
	for name, tc := range map[string]struct {
		namespace, container string
		counted              reserver.Amounts
		warnings             []string
	}{
		"as it should be": {`"namespace":"ns",`, asks, reserver.Amounts{"cpu": 2000, "memory": 2 << 30, "pods": 2}, nil},
		"without a namespace": {
			"", asks,
			reserver.Amounts{"cpu": 2000, "memory": 2 << 30, "pods": 2},
			[]string{`Pods[0] has no metadata.namespace: it was taken for default/a`},
		},
		"nothing": {`"namespace":"ns",`, `"image":"i"`, reserver.Amounts{"pods": 2}, []string{"ns/a asks for nothing"}},
		"resource": {
			`"namespace":"ns",`, `"resource":{"requests":{"cpu":"1"}}`,
			reserver.Amounts{"pods": 2},
			[]string{
				"Pods[0].spec.containers[0].resource is no field of a pod and was not read: it is called resources",
				"ns/a asks for nothing",
			},
		},
		"request": {
			`"namespace":"ns",`, `"resources":{"request":{"cpu":"1"}}`,
			reserver.Amounts{"pods": 2},
			[]string{"Pods[0].spec.containers[0].resources.request is no field", "ns/a asks for nothing"},
		},
		"limit": {
			`"namespace":"ns",`, `"resources":{"limit":{"cpu":"4"},"requests":{"cpu":"1"}}`,
			reserver.Amounts{"cpu": 2000, "pods": 2},
			[]string{"Pods[0].spec.containers[0].resources.limit is no field"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Limits{})
			pod := func(name string) string {
				return `{"metadata":{` + tc.namespace + `"name":"` + name + `"},"spec":{"containers":[{"name":"c",` + tc.container +
					`}]}}`
			}
			request := `{"SchedulerName":"s","RequestID":"x","Nodes":["node-1","node-2"],"Pods":[` + pod("a") + "," + pod("b") +
				`]}`
			for turn, path := range []string{"/v1/whatif", "/reserve", "/reserve"} { // the last one is a repeat
				got := f.serve(http.MethodPost, path, request)
				require.Equal(t, http.StatusOK, got.Code, got.Body.String())
				var answer reserver.Answer
				require.NoError(t, json.Unmarshal(got.Body.Bytes(), &answer))
				require.Empty(t, answer.Error)
				assert.Equal(t, tc.counted, answer.Requests, "%d %s", turn, path)
				require.Len(t, answer.Warnings, len(tc.warnings), "%d %s: %v", turn, path, answer.Warnings)
				for i, want := range tc.warnings {
					assert.Contains(t, answer.Warnings[i], want, "%d %s", turn, path)
				}
			}
		})
	}
}

// Of what is given back nothing is counted; a pod that may be another one than meant is told there, too.
func TestUnreserveWarnsOfAMissingNamespace(t *testing.T) {
	f := newFixture(t, Limits{})
	got := f.serve(http.MethodPost, "/unreserve", `{"SchedulerName":"s","Pods":[{"metadata":{"name":"a"}}]}`)
	var answer reserver.Answer
	require.NoError(t, json.Unmarshal(got.Body.Bytes(), &answer))
	assert.Equal(t, []string{"Pods[0] has no metadata.namespace: it was taken for default/a"}, answer.Warnings)
	assert.Empty(t, answer.Requests)
}
