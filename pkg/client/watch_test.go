package client_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

func watch(t *testing.T, o client.Options) *reserver.Watcher {
	w, err := newClient(t, o).Watch(t.Context(), reserver.WatchOptions{})
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	return w
}

// sign is a batch that tells nothing but that the server is there.
const sign = `{"Instance":"run"}` + "\n"

// What a connection told of a snapshot that it did not end is void.
func TestWatchCutOffWithinASnapshot(t *testing.T) {
	var connections atomic.Int64
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Empty(t, r.Header.Get("Last-Event-ID"))
		part := `{"Instance":"run","Snapshot":{"Instance":"run","Revision":9,"More":true}}` + "\n"
		last := `{"Instance":"run","Revision":9,"Snapshot":{"Instance":"run","Revision":9}}`
		if connections.Add(1) == 1 {
			_, _ = io.WriteString(w, part+last)
			return // before the end of a line
		}
		_, _ = io.WriteString(w, part+last+"\n"+sign)
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

// A connection over which nothing comes, not even a sign of life, is dead.
func TestSilentWatch(t *testing.T) {
	connected := make(chan struct{}, 1)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, sign)
		w.(http.Flusher).Flush()
		connected <- struct{}{}
		<-r.Context().Done()
	})
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	w := watch(t, client.Options{URL: server.URL, Clock: clock, WatchIdle: time.Minute})
	<-connected
	next(t, w, reserver.HeartbeatEvent)
	require.Eventually(t, clock.HasWaiters, eventually, time.Millisecond)
	clock.Step(time.Minute)
	require.ErrorContains(t, next(t, w, reserver.DisconnectedEvent).Err, "no sign of life for 1m0s")
}

// Whoever stops a watch does not read it any more.
func TestStopOfAWatchNobodyReads(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 10_000 {
			if _, err := io.WriteString(w, sign); err != nil {
				return
			}
		}
	})
	w := watch(t, client.Options{URL: server.URL})
	require.Eventually(t, func() bool { return len(w.Events()) == cap(w.Events()) }, eventually, time.Millisecond)
	w.Stop()
}

// The events of a batch come in order, each with what to go on after, also where the batch has kinds of changes that
// are not known.
func TestWatchOfABatch(t *testing.T) {
	var connections atomic.Int64
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, reserver.BatchMediaType, r.Header.Get("Accept"))
		switch connections.Add(1) {
		case 1:
			_, _ = io.WriteString(w,
				`{"Instance":"run","Revision":4,"Changes":[{"Allocation":{"Revision":1,"Type":"AllocationBound"}},`+
					`{"Slot":{"Revision":2}},{"Novelty":{"Revision":3}},{"Node":{"Revision":4}}]}`+"\n"+
					`{"Instance":"run","Revision":4,"CaughtUp":true}`+"\n")
		case 2:
			assert.Equal(t, "run-4", r.Header.Get("Last-Event-ID"))
			_, _ = io.WriteString(w, `{"Instance":"run","Revision":9,"Expired":true}`+"\n")
		default:
			assert.Empty(t, r.Header.Get("Last-Event-ID"), "it begins anew")
			<-r.Context().Done()
		}
	})
	w := watch(t, client.Options{URL: server.URL})
	first := next(t, w, reserver.AllocationEvent)
	assert.Equal(t, "run-1", first.ID)
	assert.Equal(t, "AllocationBound", first.Allocation.Type)
	assert.Equal(t, "run-2", next(t, w, reserver.SlotEvent).ID)
	assert.EqualValues(t, 4, next(t, w, reserver.NodeEvent).Revision)
	assert.EqualValues(t, 4, next(t, w, reserver.BookmarkEvent).Bookmark.Revision)
	require.ErrorContains(t, next(t, w, reserver.DisconnectedEvent).Err, "ended the watch")
	require.ErrorContains(t, next(t, w, reserver.DisconnectedEvent).Err, "does not keep the changes")
}

func TestWatchOfALineWithoutEnd(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat(" ", 100_000))
	})
	w := watch(t, client.Options{URL: server.URL, MaxAnswer: 90_000})
	require.ErrorContains(t, next(t, w, reserver.DisconnectedEvent).Err, "longer than 90000 bytes")
}
