package rest

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// seeds adds every hostile body, and a good one, to the corpus.
func seeds(f *testing.F) {
	for _, table := range []map[string]hostile{hostileForm(), hostileGangs(), hostilePods()} {
		for _, h := range table {
			if len(h.body) < 10_000 {
				f.Add([]byte(h.body))
			}
		}
	}
	f.Add([]byte(with(`"Mode":"Partial","TTLSeconds":60,"RequestID":"r","MinRevision":1,"Durable":true,"Name":"n"`)))
}

func newFuzzServer(f *testing.F) *fixture {
	server := newFixture(f, Limits{MinRevisionWait: time.Millisecond})
	server.found = nil // the document does not say all that is wrong with a request
	return server
}

// withinBudget fails, while inputs are being looked for, where a request takes far more memory than its body is long:
// manifests/base adds up what bodies may take. What is thrown away at once counts here as well, and what answers and
// their errors take, and what anybody else allocates meanwhile.
func withinBudget(t *testing.T, body []byte, serve func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	serve()
	runtime.ReadMemStats(&after)
	if flag.Lookup("test.fuzz").Value.String() == "" {
		return
	}
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20+200*len(body)), "%.200s", body)
}

// decided sends a body, which is to be answered in JSON, and with no more memory than it may take.
func decided(t *testing.T, server *fixture, path string, body []byte) (code int, answer reserver.Answer) {
	t.Helper()
	var w *httptest.ResponseRecorder
	withinBudget(t, body, func() { w = server.serve(http.MethodPost, path, string(body)) })
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer), w.Body.String())
	assert.NotEqual(t, http.StatusInternalServerError, w.Code, w.Body.String())
	return w.Code, answer
}

// Whatever the body, /reserve answers in JSON, and what it grants is consistent.
func FuzzReserve(f *testing.F) {
	seeds(f)
	server := newFuzzServer(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		code, answer := decided(t, server, "/reserve", body)
		if code != http.StatusOK {
			assert.NotEmpty(t, answer.Error)
		}
		assert.Zero(t, server.ledger.Stats().OvercommittedNodes)
		server.ledger.Expire(time.Now().Add(24 * time.Hour))
	})
}

// Whatever the body, /unreserve answers in JSON, and gives back no more than what it names: not what is bound.
func FuzzUnreserve(f *testing.F) {
	seeds(f)
	for _, seed := range []string{
		`{"SchedulerName":"s","Reservation":{"Namespace":"default","Name":"n"}}`, `{"SchedulerName":"s","Reservation":{}}`,
		`{"Pods":[{"metadata":{"name":"old"}}]}`,
		`{"SchedulerName":"s","Pods":[{"metadata":{"name":"old","uid":"old"}},null]}`,
	} {
		f.Add([]byte(seed))
	}
	server := newFuzzServer(f)
	server.bind(aPod("old", "1", "1Gi"), "node-1")
	f.Fuzz(func(t *testing.T, body []byte) {
		decided(t, server, "/unreserve", body)
		assert.Equal(t, 1, server.ledger.Stats().Allocations[ledger.Bound])
	})
}

// Whatever the body, /v1/whatif changes nothing.
func FuzzWhatIf(f *testing.F) {
	seeds(f)
	server := newFuzzServer(f)
	server.bind(aPod("old", "1", "1Gi"), "node-1")
	before := server.ledger.Revision()
	f.Fuzz(func(t *testing.T, body []byte) {
		w := server.serve(http.MethodPost, "/v1/whatif", string(body))
		var answer reserver.WhatIfAnswer
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer), w.Body.String())
		assert.NotEqual(t, http.StatusInternalServerError, w.Code, w.Body.String())
		require.Equal(t, before, server.ledger.Revision())
	})
}

// Whatever the query, the read side answers in JSON and without a failure.
func FuzzQuery(f *testing.F) {
	for _, table := range []map[string]hostile{hostileQueries()} {
		for _, h := range table {
			if path, raw, ok := strings.Cut(h.path, "?"); ok {
				f.Add(strings.TrimPrefix(path, "/v1/"), raw)
			}
		}
	}
	server := newFixture(f, Limits{})
	server.bind(aPod("old", "1", "1Gi"), "node-1")
	f.Fuzz(func(t *testing.T, path, raw string) {
		if path != "allocations" && path != "nodes" && path != "explain" && path != "reservations" {
			return
		}
		target := (&url.URL{Path: "/v1/" + path}).String()
		r := httptest.NewRequest(http.MethodGet, target, http.NoBody)
		r.URL.RawQuery = raw
		w := httptest.NewRecorder()
		server.handler.ServeHTTP(w, r)
		assert.Less(t, w.Code, http.StatusInternalServerError, w.Body.String())
		assert.True(t, json.Valid(w.Body.Bytes()), w.Body.String())
	})
}
