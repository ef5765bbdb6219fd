package contract

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

func watch(t *testing.T, o client.Options) *reserver.Watcher {
	w, err := newClient(t, o).Watch(t.Context(), reserver.WatchOptions{})
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	return w
}

func allocationOf(name string) ledger.PodRef {
	pod := aPod(name, "1")
	return ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
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

func TestWatchThatIsRefusedGoesOnTrying(t *testing.T) {
	s := newSystem(t)
	var tries atomic.Int64
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch tries.Add(1) {
		case 1:
			w.WriteHeader(http.StatusUnauthorized)
		case 2:
			_, _ = io.WriteString(w, "event: snapshot\ndata: {}\n\n")
		default:
			s.handler.ServeHTTP(w, r)
		}
	})
	w := watch(t, client.Options{URL: server.URL})
	require.ErrorAs(t, next(t, w, reserver.DisconnectedEvent).Err, new(*reserver.UnauthorizedError))
	require.ErrorContains(t, next(t, w, reserver.DisconnectedEvent).Err, "not one of GlobalReserve")
	next(t, w, reserver.SnapshotEvent)
}
