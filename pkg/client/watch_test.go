package client_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

func allocationOf(name string) ledger.PodRef {
	pod := aPod(name, "1")
	return ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

func watch(t *testing.T, o client.Options) *reserver.Watcher {
	w, err := newClient(t, o).Watch(t.Context(), reserver.WatchOptions{})
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	return w
}

// Nothing is missed and nothing told twice over a connection that breaks.
func TestWatchResumesAfterABrokenConnection(t *testing.T) {
	s := newSystem(t)
	server := serve(t, s.handler.ServeHTTP)
	w := watch(t, client.Options{URL: server.URL})
	next(t, w, reserver.SnapshotEvent)
	next(t, w, reserver.BookmarkEvent)
	for _, name := range []string{"a", "b", "c"} {
		server.CloseClientConnections()
		event := <-w.Events()
		for event.Type == reserver.BookmarkEvent { // of the connection before
			event = <-w.Events()
		}
		require.Equal(t, reserver.DisconnectedEvent, event.Type)
		require.ErrorAs(t, event.Err, new(*reserver.UnavailableError))
		_, err := s.api.Reserve(t.Context(), ask(aPod(name, "1")))
		require.NoError(t, err)
		event = <-w.Events()
		for event.Type == reserver.BookmarkEvent || event.Type == reserver.DisconnectedEvent {
			event = <-w.Events()
		}
		require.Equal(t, reserver.SlotEvent, event.Type)
		assert.Equal(t, name, event.Slot.Slot.Slot.Pod)
	}
}

// A server that was started anew knows nothing of the events of the one before.
func TestWatchOverARestart(t *testing.T) {
	first, second := newSystem(t), newSystem(t)
	second.AddNode("node-2", "4", "8Gi")
	var current atomic.Pointer[system]
	current.Store(first)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) { current.Load().handler.ServeHTTP(w, r) })
	w := watch(t, client.Options{URL: server.URL})
	before := next(t, w, reserver.SnapshotEvent)
	next(t, w, reserver.BookmarkEvent)
	current.Store(second)
	server.CloseClientConnections()
	next(t, w, reserver.DisconnectedEvent)
	next(t, w, reserver.DisconnectedEvent) // it asked to go on, and was told that it cannot
	after := next(t, w, reserver.SnapshotEvent)
	assert.True(t, after.First)
	assert.Len(t, after.Snapshot.Nodes, 2)
	assert.NotEqual(t, before.Instance, after.Instance)
}

// What a connection told of a snapshot that it did not end is void.
func TestWatchCutOffWithinASnapshot(t *testing.T) {
	var connections atomic.Int64
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Empty(t, r.Header.Get("Last-Event-ID"))
		part := "event: snapshot\ndata: {\"Instance\":\"run\",\"Revision\":9,\"More\":true}\n\n"
		if connections.Add(1) == 1 {
			_, _ = io.WriteString(w, part+"event: snapshot\nid: run-9\ndata: {\"Instance\":\"run\"")
			return // in the middle of an event
		}
		_, _ = io.WriteString(w, part+"event: snapshot\nid: run-9\ndata: {\"Instance\":\"run\",\ndata: \"Revision\":9}\n\n: x\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	w := watch(t, client.Options{URL: server.URL})
	assert.True(t, next(t, w, reserver.SnapshotEvent).First)
	next(t, w, reserver.DisconnectedEvent)
	assert.True(t, next(t, w, reserver.SnapshotEvent).First)
	last := next(t, w, reserver.SnapshotEvent)
	assert.False(t, last.First)
	assert.EqualValues(t, 9, last.Revision)
	assert.Equal(t, "run-9", last.ID)
	next(t, w, reserver.HeartbeatEvent)
}

func TestWatchThatIsRefusedGoesOnTrying(t *testing.T) {
	s := newSystem(t)
	var tries atomic.Int64
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch tries.Add(1) {
		case 1:
			w.WriteHeader(http.StatusUnauthorized)
		case 2:
			_, _ = io.WriteString(w, "event: allocation\nid: run-1\ndata: {]\n\n")
		default:
			s.handler.ServeHTTP(w, r)
		}
	})
	w := watch(t, client.Options{URL: server.URL})
	require.ErrorAs(t, next(t, w, reserver.DisconnectedEvent).Err, new(*reserver.UnauthorizedError))
	require.ErrorContains(t, next(t, w, reserver.DisconnectedEvent).Err, "not one of GlobalReserve")
	next(t, w, reserver.SnapshotEvent)
}

// A connection over which nothing comes, not even a sign of life, is dead.
func TestSilentWatch(t *testing.T) {
	connected := make(chan struct{}, 1)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, ": hello\n\n")
		w.(http.Flusher).Flush()
		connected <- struct{}{}
		<-r.Context().Done()
	})
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	w := watch(t, client.Options{URL: server.URL, Clock: clock, WatchIdle: time.Minute})
	<-connected
	next(t, w, reserver.HeartbeatEvent)
	require.Eventually(t, func() bool { return clock.Waiters() == 1 }, eventually, time.Millisecond)
	clock.Step(time.Minute)
	require.ErrorContains(t, next(t, w, reserver.DisconnectedEvent).Err, "no sign of life for 1m0s")
}

// Whoever stops a watch does not read it any more.
func TestStopOfAWatchNobodyReads(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 10_000 {
			if _, err := io.WriteString(w, ": x\n\n"); err != nil {
				return
			}
		}
	})
	w := watch(t, client.Options{URL: server.URL})
	require.Eventually(t, func() bool { return len(w.Events()) == cap(w.Events()) }, eventually, time.Millisecond)
	w.Stop()
}
