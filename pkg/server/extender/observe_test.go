package extender

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// Who only observes answers a scheduler as if there were capacity everywhere, and binds where it says.
func TestObserving(t *testing.T) {
	var bound []string
	var fails error
	router := httpjson.NewRouter()
	NewObserving(ObserveOptions{
		Bind: func(_ context.Context, pod ledger.PodRef, node string) error {
			bound = append(bound, pod.String()+" "+string(pod.UID)+" "+node)
			return fails
		},
		Metrics: metrics.New(), Intake: httpjson.NewIntake(1<<20, func(*http.Request) string { return "" }),
	}).Register(router)
	ask := func(verb, body string) (answer any) {
		r := httptest.NewRequest(http.MethodPost, "/"+verb, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		return answer
	}
	const pod = `"Pod":{"metadata":{"namespace":"n","name":"p","uid":"u"}}`
	assert.Equal(t, map[string]any{
		"Nodes": nil, "NodeNames": []any{"a", "b"}, "FailedNodes": map[string]any{},
		"FailedAndUnresolvableNodes": map[string]any{}, "Error": "",
	}, ask("filter", `{`+pod+`,"NodeNames":["a","b"]}`))
	assert.Equal(t, []any{map[string]any{"Host": "a", "Score": 0.0}, map[string]any{"Host": "b", "Score": 0.0}},
		ask("prioritize", `{`+pod+`,"NodeNames":["a","b"]}`))
	victims := map[string]any{"a": map[string]any{"Pods": []any{map[string]any{"UID": "v"}}, "NumPDBViolations": 1.0}}
	assert.Equal(t, map[string]any{"NodeNameToMetaVictims": victims},
		ask("preempt", `{`+pod+`,"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"v"}],"NumPDBViolations":1}}}`))
	const bind = `{"PodNamespace":"n","PodName":"p","PodUID":"u","Node":"a"}`
	assert.Equal(t, map[string]any{"Error": ""}, ask("bind", bind))
	fails = errors.New("the API server says no")
	assert.Equal(t, map[string]any{"Error": "the API server says no", "Outcome": "failed"}, ask("bind", bind))
	assert.Equal(t, []string{"n/p u a", "n/p u a"}, bound)
}
