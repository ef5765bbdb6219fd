//go:build costs && unix

package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/costs"
)

// fullPod is a pod of about 4 KB, as a scheduler has it from the API server.
func fullPod(t *testing.T) (pod *v1.Pod) {
	text, err := os.ReadFile("testdata/pod.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &pod))
	return pod
}

func TestCosts(t *testing.T) {
	t.Run("reserve", reserveCosts)
	t.Run("watch", watchCosts)
}

// A watcher receives ten binds in one batch.
func watchCosts(t *testing.T) {
	f := newFixture(t, Limits{})
	f.AddNode("big", "4000", "8000Gi")
	pod := f.Bring(aPod("p", "1", "1Gi"))
	after := f.ledger.Revision()
	for i := range 10 {
		ref := pod.Ref
		ref.Name, ref.UID = fmt.Sprint("p", i), types.UID(fmt.Sprint("uid-", i))
		f.ledger.ObservePod(ledger.PodObservation{Pod: ref, Node: "big", Request: pod.Request, Scheduler: testScheduler})
	}
	answer := discard{http.Header{}}
	costs.Check(t, "tell a watcher 10 changes", func() {
		s := f.api.newStream(t.Context(), answer)
		last, ok := s.changes(after)
		s.fail()
		require.True(t, ok)
		require.Equal(t, after+10, last)
	})
}

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
func (d discard) Flush()                      {}

// A gang of 1,000 pods of 4 KB is reserved on 1,000 nodes, and given back.
func reserveCosts(t *testing.T) {
	f := newFixture(t, Limits{})
	const pods = 1_000
	gang := body{SchedulerName: testScheduler}
	full := fullPod(t)
	for i := range pods {
		node, pod := fmt.Sprintf("big-%d", i), full.DeepCopy()
		f.AddNode(node, "4", "8Gi")
		pod.Name, pod.UID = fmt.Sprintf("worker-%d", i), types.UID(fmt.Sprintf("uid-worker-%d", i))
		gang.Pods, gang.Nodes = append(gang.Pods, pod), append(gang.Nodes, node)
	}
	text, err := json.Marshal(gang)
	require.NoError(t, err)
	costs.Check(t, "reserve and unreserve 1000 pods", func() {
		for _, path := range []string{"/reserve", "/unreserve"} {
			request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(text))
			request.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			f.handler.ServeHTTP(answer, request)
			require.Equal(t, http.StatusOK, answer.Code)
			require.Contains(t, answer.Body.String(), `"Error":""`)
		}
	})
}
