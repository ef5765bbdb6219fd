//go:build costs && unix

package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/costs"
)

// A gang of 1,000 pods of 4 KB is reserved on 1,000 nodes, and given back.
func TestCosts(t *testing.T) {
	f := newFixture(t, Limits{})
	const pods = 1_000
	gang := body{SchedulerName: testScheduler}
	for i := range pods {
		name := fmt.Sprintf("big-%d", i)
		f.addNode(name, "4", "8Gi")
		gang.Pods = append(gang.Pods, fullPod(fmt.Sprintf("worker-%d", i)))
		gang.Nodes = append(gang.Nodes, name)
	}
	text, err := json.Marshal(gang)
	require.NoError(t, err)
	handler := f.server.Config.Handler
	costs.Check(t, "reserve and unreserve 1000 pods", func() {
		for _, path := range []string{"/reserve", "/unreserve"} {
			request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(text))
			request.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			require.Equal(t, http.StatusOK, answer.Code)
			require.Contains(t, answer.Body.String(), `"Error":""`)
		}
	})
}
