package rest

import (
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// A pod that a plugin elsewhere has refused is among the refusals and those that wait, with what the ledger says of it.
func TestToldRefusals(t *testing.T) { synctest.Test(t, toldRefusals) } // the time that reading the pods may take does not pass here

func toldRefusals(t *testing.T) {
	f := newFixture(t, Limits{})
	large := aPod("large", "5", "1Gi")
	large.ResourceVersion = "1"
	f.Bring(large)
	before := f.ledger.Revision()
	name := reserver.PodName{Namespace: "team-a", Pod: "large", UID: "uid-large"}
	var told reserver.ToldAnswer
	f.post("/v1/refused", reserver.RefusedRequest{Pods: []reserver.PodName{name, {Namespace: "team-a", Pod: "gone", UID: "u"}}}, &told)
	assert.Equal(t, reserver.ToldAnswer{Remembered: 1, Ignored: 1}, told)
	assert.Equal(t, before, f.ledger.Revision())
	var answer reserver.RefusalsAnswer
	f.get("/v1/refusals?path=plugin", &answer)
	require.Equal(t, []string{"large"}, refusedPods(answer))
	assert.Equal(t, map[string]int{"InsufficientResource": 3}, answer.Refusals[0].Reasons)
	var pending reserver.PendingAnswer
	f.get("/v1/pending", &pending)
	assert.Equal(t, []string{"large node"}, pendingPods(pending))

	many := `{"Pods":[` + strings.Repeat(`{"Namespace":"n","Pod":"p","UID":"u"},`, 1000) + `{"Namespace":"n","Pod":"p","UID":"u"}]}`
	for body, want := range map[string]string{
		`{"Pods":[]}`:                             "name the pods that were refused",
		`{"Pods":[{"Namespace":"n","Pod":"p"}]}`:  "Pods[0] lacks its Namespace, Pod (the name) or UID",
		`{"Pods":[],"Reasons":{"HostPort":1000}}`: "Reasons",
		many: "1000",
	} {
		refused := f.serve(http.MethodPost, "/v1/refused", body)
		assert.Equal(t, http.StatusBadRequest, refused.Code, refused.Body.String())
		assert.Contains(t, refused.Body.String(), want)
	}

	f.notReady = "another server decides"
	refused := f.serve(http.MethodPost, "/v1/refused", `{"Pods":[{"Namespace":"n","Pod":"p","UID":"u"}]}`)
	assert.Equal(t, http.StatusServiceUnavailable, refused.Code, refused.Body.String())
}

// Who tells of pods that have to be read live waits for the API server, and nobody else does.
func TestToldRefusalsKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Limits{})
		f.API.Answer(time.Hour, nil)
		var tells sync.WaitGroup
		for range runtime.GOMAXPROCS(0) + 2 {
			tells.Go(func() { f.serve(http.MethodPost, "/v1/refused", `{"Pods":[{"Namespace":"n","Pod":"p","UID":"u"}]}`) })
		}
		synctest.Wait()
		began := time.Now()
		assert.Equal(t, http.StatusOK, f.serve(http.MethodGet, "/v1/nodes", "").Code)
		assert.Zero(t, time.Since(began))
		tells.Wait()
	})
}
