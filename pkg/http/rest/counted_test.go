package rest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// What was granted is reported in amounts, and where that may not be what was meant, in words.
func TestWhatWasCountedIsTold(t *testing.T) {
	const asks = `"resources":{"requests":{"cpu":"1","memory":"1Gi"}}`
	const inNS, spec = `"namespace":"ns",`, "Pods[0].spec.containers[0]."
	const nothing, namespace = "ns/a asks for nothing", `Pods[0] has no metadata.namespace: it was taken for default/a`
	both := reserver.Amounts{"cpu": 2000, "memory": 2 << 30, "pods": 2}
	for name, tc := range map[string]struct {
		namespace, container string
		counted              reserver.Amounts
		warnings             []string
	}{
		"as it should be":     {inNS, asks, both, nil},
		"without a namespace": {"", asks, both, []string{namespace}},
		"nothing":             {inNS, `"image":"i"`, reserver.Amounts{"pods": 2}, []string{nothing}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Limits{})
			pod := func(name string) string {
				return `{"metadata":{` + tc.namespace + `"name":"` + name + `"},"spec":{"containers":[{"name":"c",` +
					tc.container + `}]}}`
			}
			pods := `"Pods":[` + pod("a") + "," + pod("b") + `]}`
			request := `{"SchedulerName":"s","RequestID":"x","Nodes":["node-1","node-2"],` + pods
			for turn, path := range []string{"/v1/whatif", "/reserve", "/reserve"} { // the last one is a repeat
				var answer reserver.Answer
				f.post(path, request, &answer)
				require.Empty(t, answer.Error)
				assert.Equal(t, tc.counted, answer.Requests, "%d %s", turn, path)
				require.Len(t, answer.Warnings, len(tc.warnings), "%d %s: %v", turn, path, answer.Warnings)
				for i, want := range tc.warnings {
					assert.Contains(t, answer.Warnings[i], want, "%d %s", turn, path)
				}
			}
			// Of what is given back nothing is counted; a pod that may be another one than meant is reported there, too.
			var answer reserver.Answer
			f.post("/unreserve", `{"SchedulerName":"s",`+pods, &answer)
			assert.Equal(t, tc.namespace == "", slices.Equal(answer.Warnings, []string{namespace}))
			assert.Empty(t, answer.Requests)
		})
	}
}
