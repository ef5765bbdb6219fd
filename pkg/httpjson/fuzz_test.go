package httpjson

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// FuzzDecode holds Decode against encoding/json: what Decode accepts means the same to both, and
// what it refuses gets a short 4xx.
func FuzzDecode(f *testing.F) {
	f.Add(string(filterBody(f, 3)))
	f.Add(`{"pod":{"metadata":{"name":"a"},"spec":{"containers":[{"resources":{"requests":{"cpu":"1e3","memory":5}}}]}}}`)
	f.Add(`{"Pod":{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}},"NodeNames":["a","b"],"NODENAMES":null}`)
	f.Add(`{"Nodes":{"items":[{"status":{"allocatable":{"cpu":"-1","nvidia.com/gpu":"99999999999999999999"}}}]}}`)
	f.Add(
		`{"Pod":{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":"http"}}},{"livenessProbe":{"httpGet":{"port":80}}}]}}}`,
	)
	f.Add(strings.Repeat(`{"Pod":`, 200))
	f.Add(`{"NodeNames":["\u0000\ud83d\ude00\ud800"]}`)
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPost, "/filter", strings.NewReader(body))
		var got, want extenderv1.ExtenderArgs
		err := decode(httptest.NewRecorder(), r, 1<<20, &got)
		if err == nil {
			require.NoError(t, json.Unmarshal([]byte(body), &want), "encoding/json refuses what Decode accepted")
			assert.Equal(t, want, got)
			return
		}
		var refused *Error
		require.ErrorAs(t, err, &refused)
		assert.GreaterOrEqual(t, refused.Status, 400)
		assert.Less(t, refused.Status, 500)
		assert.Less(t, len(refused.Message), 600)
	})
}
