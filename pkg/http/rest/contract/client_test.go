package contract

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// serve runs a server of h until the test ends.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server
}

// loseAnswers carries requests out and cuts the connection before the first n
// answers. ids receives the RequestID of each try.
func loseAnswers(t *testing.T, s *system, n int64, ids chan<- string) *httptest.Server {
	var tries atomic.Int64
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		var sent struct{ RequestID string }
		assert.NoError(t, json.Unmarshal(content, &sent))
		ids <- sent.RequestID
		r.Body = io.NopCloser(strings.NewReader(string(content)))
		recorder := httptest.NewRecorder()
		s.handler.ServeHTTP(recorder, r)
		if tries.Add(1) <= n {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(recorder.Body.Bytes())
	})
}

func TestLostAnswer(t *testing.T) {
	s := newSystem(t)
	ids := make(chan string, 3)
	c := newClient(t, client.Options{URL: loseAnswers(t, s, 2, ids).URL})
	answer, err := c.Reserve(t.Context(), ask(aPod("a", "3"))) // twice would not fit
	require.NoError(t, err)
	allocation, ok := s.ledger.InMemory(allocationOf("a"))
	require.True(t, ok)
	assert.Equal(t, "node-1", allocation.Node)
	assert.Equal(t, answer.Revision, s.ledger.Revision(), "carried out once")
	require.Len(t, ids, 3)
	first := <-ids
	assert.NotEmpty(t, first)
	assert.Equal(t, []string{first, first}, []string{<-ids, <-ids})
}

func TestAnswerThatIsAlwaysLost(t *testing.T) {
	s := newSystem(t)
	ids := make(chan string, 1000)
	c := newClient(t, client.Options{URL: loseAnswers(t, s, 1<<40, ids).URL, RetryFor: 200 * time.Millisecond})
	_, err := c.Reserve(t.Context(), ask(aPod("a", "3")))
	var unknown *reserver.UnknownOutcomeError
	require.ErrorAs(t, err, &unknown)
	assert.Equal(t, <-ids, unknown.RequestID)

	again := ask(aPod("a", "3"))
	again.RequestID = unknown.RequestID
	_, err = inProcess(t, s).Reserve(t.Context(), again)
	require.NoError(t, err, "the caller learns what became of it")
	assert.Equal(t, 1, s.allocations())
}

// One connection serves all requests that come one after the other, also after answers of no use.
func TestConnectionIsReused(t *testing.T) {
	s := newSystem(t)
	server := httptest.NewUnstartedServer(s.handler)
	var opened atomic.Int64
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c := newClient(t, client.Options{URL: server.URL})
	_, err := c.Revision(t.Context())
	require.NoError(t, err)
	for name, ask := range map[string]func(){
		"refused": func() {
			_, err := c.Reserve(t.Context(), ask(aPod("a", "100")))
			require.ErrorAs(t, err, new(*reserver.RefusedError))
		},
		"bad": func() {
			_, err := c.Reserve(t.Context(), ask())
			require.ErrorAs(t, err, new(*reserver.BadRequestError))
		},
	} {
		// Not each time: the transport gives up a connection of which it does not learn in time that the request is written.
		reused := false
		for tries := 0; !reused && tries < 1000; tries++ {
			ask()
			before := opened.Load()
			_, err := c.Revision(t.Context())
			require.NoError(t, err)
			reused = opened.Load() == before
		}
		assert.True(t, reused, name)
	}
}

func TestReads(t *testing.T) {
	s := newSystem(t)
	c := newClient(t, client.Options{URL: serve(t, s.handler.ServeHTTP).URL})
	nodes, err := c.Nodes(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 4000, nodes.Nodes[0].Resources["cpu"].Allocatable)

	whatIf := &reserver.WhatIfRequest{Request: *ask(aPod("a", "3"))}
	whatIf.Nodes = nil
	answer, err := c.WhatIf(t.Context(), whatIf)
	require.NoError(t, err)
	assert.Equal(t, "node-1", answer.Placements[0].Node)
	assert.Zero(t, s.allocations())

	_, err = c.Explain(t.Context(), "default", "a")
	var bad *reserver.BadRequestError
	require.ErrorAs(t, err, &bad)
	assert.Equal(t, http.StatusNotFound, bad.Status)
	_, err = c.Reserve(t.Context(), ask(aPod("a", "3")))
	require.NoError(t, err)
	explained, err := c.Explain(t.Context(), "default", "a")
	require.NoError(t, err)
	assert.Equal(t, "Reserved", explained.State)

	node, err := c.Node(t.Context(), "node-1")
	require.NoError(t, err)
	assert.EqualValues(t, 1000, node.Node.Resources["cpu"].Free)
	_, err = c.Node(t.Context(), "no-such-node")
	require.ErrorAs(t, err, &bad)
	assert.Equal(t, http.StatusNotFound, bad.Status)
	for selector, found := range map[string]int{"default": 1, "other": 0} {
		reservations, err := c.Reservations(t.Context(), url.Values{"namespace": {selector}})
		require.NoError(t, err)
		assert.Len(t, reservations.Reservations, found)
		allocations, err := c.Allocations(t.Context(), url.Values{"namespace": {selector}})
		require.NoError(t, err)
		assert.Empty(t, allocations.Allocations, "it is not bound")
	}
}

func allocationOf(name string) ledger.PodRef {
	pod := aPod(name, "1")
	return ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}
