package rest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// sseEvent is a server-sent event as a client reads it; a comment has only that.
type sseEvent struct {
	name, id, data, comment string
}

// watcher reads a stream.
type watcher struct {
	t      testing.TB
	events *bufio.Scanner
	cancel context.CancelFunc
}

func (f *fixture) watch(query string, header ...string) *watcher {
	f.t.Helper()
	if f.server == nil {
		f.listen(func(*http.Server) {})
	}
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.server.URL+"/v1/watch"+query, http.NoBody)
	require.NoError(f.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := f.server.Client().Do(req)
	require.NoError(f.t, err)
	require.Equal(f.t, http.StatusOK, resp.StatusCode)
	want := "text/event-stream"
	if strings.Contains(req.Header.Get("Accept"), reserver.BatchMediaType) {
		want = reserver.BatchMediaType
	}
	require.Equal(f.t, want, resp.Header.Get("Content-Type"))
	f.t.Cleanup(func() {
		cancel()
		_ = resp.Body.Close()
	})
	scanner := bufio.NewScanner(resp.Body)
	scanner.Buffer(nil, 4<<20)
	return &watcher{t: f.t, events: scanner, cancel: cancel}
}

// next returns the next event; false where the stream has ended.
func (w *watcher) next() (sseEvent, bool) {
	var e sseEvent
	for w.events.Scan() {
		line := w.events.Text()
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.data = value
		case "":
			if line == "" {
				return e, true
			}
			e.comment = value
		default:
			w.t.Errorf("unknown line %q", line)
		}
	}
	return e, false
}

// expect reads an event of that name, and returns its data and its id.
func expect[T any](w *watcher, name string) (data T, id string) {
	w.t.Helper()
	e, ok := w.next()
	require.True(w.t, ok, "the stream has ended, want %s", name)
	require.Equal(w.t, name, e.name, e.data)
	require.NoError(w.t, json.Unmarshal([]byte(e.data), &data))
	return data, e.id
}

// caughtUp reads that all there was has been told, and returns up to which revision.
func (w *watcher) caughtUp() uint64 {
	w.t.Helper()
	mark, _ := expect[reserver.WatchBookmark](w, "bookmark")
	return mark.Revision
}

func TestWatchFromSnapshot(t *testing.T) {
	f := newFixture(t, Limits{})
	f.reserve(gangOf("node-1", aPod("a", "1", "1Gi")))
	w := f.watch("")
	start := f.ledger.Revision()
	snapshot, id := expect[reserver.WatchSnapshot](w, "snapshot")
	assert.Equal(t, reserver.EventID(f.api.instance, start), id)
	assert.Equal(t, f.api.instance, snapshot.Instance)
	assert.Equal(t, start, snapshot.Revision)
	assert.False(t, snapshot.More)
	assert.Len(t, snapshot.Nodes, 3)
	assert.Empty(t, snapshot.Allocations)
	require.Len(t, snapshot.Slots, 1)
	assert.Equal(t, reserver.Amounts{"cpu": 1000, "memory": gib, "pods": 1}, snapshot.Slots[0].Slot.Requests)
	assert.Equal(t, start, w.caughtUp())

	f.bind(aPod("a", "1", "1Gi"), "node-2")
	slot, id := expect[reserver.WatchSlot](w, "slot")
	assert.Equal(t, reserver.EventID(f.api.instance, start+1), id)
	assert.Equal(t, "SlotReleased", slot.Type)
	assert.Empty(t, slot.Slot.Reservation)
	assert.Equal(t, []string{"team-a", "a", "node-1"},
		[]string{slot.Slot.Namespace, slot.Slot.Slot.Pod, slot.Slot.Slot.Node})
	allocation, _ := expect[reserver.WatchAllocation](w, "allocation")
	assert.Equal(t, "AllocationBound", allocation.Type)
	assert.Equal(t, "node-2", allocation.Allocation.Node)
	assert.Equal(t, "Bound", allocation.Allocation.State)

	f.AddNode("node-4", "4", "8Gi")
	node, _ := expect[reserver.WatchNode](w, "node")
	require.NotNil(t, node.Time)
	assert.WithinDuration(t, time.Now(), *node.Time, time.Minute)
	node.Time = nil
	assert.Equal(t, reserver.WatchNode{
		Revision: start + 3, Type: "NodeUpdated",
		Node: reserver.WatchedNode{
			Name: "node-4", UID: "uid-node-4",
			Allocatable: reserver.Amounts{"cpu": 4000, "memory": 8 * gib, "pods": 110},
		},
	}, node)
	f.label("node-4", map[string]string{"agentpool": "blue"})
	node, _ = expect[reserver.WatchNode](w, "node")
	assert.Equal(t, "NodeLabeled", node.Type)
	assert.Equal(t, map[string]string{"agentpool": "blue"}, node.Node.Labels)
	assert.Equal(t, "blue", node.Node.Pool)
	assert.Equal(t, reserver.Amounts{"cpu": 4000, "memory": 8 * gib, "pods": 110}, node.Node.Allocatable)
	f.ledger.RemoveNode("node-4")
	node, _ = expect[reserver.WatchNode](w, "node")
	assert.Equal(t, "NodeRemoved", node.Type)
}

func TestWatchResumes(t *testing.T) {
	f := newFixture(t, Limits{})
	start := f.ledger.Revision()
	for i := range 5 {
		f.reserve(gangOf("node-1", aPod(fmt.Sprint("p", i), "100m", "1Mi")))
	}
	third := reserver.EventID(f.api.instance, start+2)
	tests := map[string]struct {
		watcher *watcher
		after   uint64
	}{
		"by parameter": {f.watch(fmt.Sprint("?revision=", start)), start},
		"by header":    {f.watch("", "Last-Event-ID", fmt.Sprint(start+3)), start + 3},
		"by header, older parameter": {
			f.watch(fmt.Sprint("?revision=", start), "Last-Event-ID", fmt.Sprint(start+4)),
			start + 4,
		},
		"by the id of an event":           {f.watch("", "Last-Event-ID", third), start + 2},
		"by id in the parameter":          {f.watch("?revision=" + third), start + 2},
		"from now":                        {f.watch(fmt.Sprint("?revision=", start+5)), start + 5},
		"from where the ledger has begun": {f.watch("?revision=1000"), 1000},
	}
	for name, tc := range tests {
		for revision := tc.after + 1; revision <= start+5; revision++ {
			e, ok := tc.watcher.next()
			require.True(t, ok)
			assert.Equal(t, reserver.EventID(f.api.instance, revision), e.id, name)
		}
		assert.Equal(t, start+5, tc.watcher.caughtUp(), name)
	}
}

// Large accounts come in parts, and only the last has an id to resume from.
func TestWatchSnapshotInParts(t *testing.T) {
	f := newFixture(t, Limits{})
	const allocations = 2*snapshotBatch + 1
	request := f.Bring(aPod("p", "1m", "1")).Request
	for i := range allocations {
		ref := ledger.PodRef{Namespace: "n", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i))}
		f.ledger.ObservePod(ledger.PodObservation{Pod: ref, Node: "node-1", Request: request})
	}
	w := f.watch("")
	seen, parts := map[string]bool{}, 0
	for more := true; more; parts++ {
		snapshot, id := expect[reserver.WatchSnapshot](w, "snapshot")
		more = snapshot.More
		assert.Equal(t, more, id == "")
		assert.Equal(t, f.ledger.Revision(), snapshot.Revision)
		for _, c := range snapshot.Allocations {
			seen[c.Pod] = true
		}
	}
	assert.Equal(t, 3, parts)
	assert.Len(t, seen, allocations)
}

func TestWatchHeartbeat(t *testing.T) {
	f := newFixture(t, Limits{Heartbeat: time.Millisecond})
	w := f.watch(fmt.Sprint("?revision=", f.ledger.Revision()))
	w.caughtUp()
	for range 3 {
		e, ok := w.next()
		require.True(t, ok)
		assert.Equal(t, "heartbeat", e.comment)
	}
	w = f.watch(fmt.Sprint("?revision=", f.ledger.Revision()), batched...)
	assert.True(t, w.nextBatch().CaughtUp)
	for range 3 {
		assert.Equal(t, &reserver.WatchBatch{Instance: f.api.instance}, w.nextBatch())
	}
}

// The server's limit on the time a request takes to be read is for short ones.
func TestWatchOutlivesReadTimeout(t *testing.T) {
	f := newFixture(t, Limits{})
	f.listen(func(s *http.Server) { s.ReadTimeout, s.ReadHeaderTimeout = time.Second, time.Minute })
	w := f.watch(fmt.Sprint("?revision=", f.ledger.Revision()))
	w.caughtUp()
	ended := func() bool { return f.api.watchers.Had() == 0 }
	require.Never(t, ended, f.server.Config.ReadTimeout*3/2, 10*time.Millisecond)
}

func TestWatchEndsWithTheServer(t *testing.T) {
	f := newFixture(t, Limits{})
	w := f.watch(fmt.Sprint("?revision=", f.ledger.Revision()))
	w.caughtUp()
	close(f.done)
	_, ok := w.next()
	assert.False(t, ok)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	assert.NoError(t, f.server.Config.Shutdown(ctx), "no stream holds the server up")
}

func TestTooManyWatchers(t *testing.T) {
	f := newFixture(t, Limits{MaxWatchers: 4})
	first := f.watch("")
	f.watch("")
	refused, err := f.server.Client().Get(f.server.URL + "/v1/watch")
	require.NoError(t, err)
	reply, err := io.ReadAll(refused.Body)
	require.NoError(t, err)
	require.NoError(t, refused.Body.Close())
	assert.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
	assert.Contains(t, string(reply), "2 watchers")
	first.cancel()
	require.Eventually(t, func() bool { return f.api.watchers.Had() == 1 }, time.Minute, time.Millisecond)
	f.watch("")
}

// A watcher that the journal has run past is told so, not left with a gap.
func TestWatchFallsBehind(t *testing.T) {
	f := newFixture(t, Limits{})
	old := f.ledger.Revision()
	for i := range 65 { // one more than the journal keeps
		f.AddNode(fmt.Sprint("new-", i), "1", "1Gi")
	}
	gone := f.serve(http.MethodGet, fmt.Sprint("/v1/watch?revision=", old), "")
	assert.Equal(t, http.StatusGone, gone.Code)
	assert.Contains(t, gone.Body.String(), "without a revision")

	// Mid-stream: the changes come while the stream is not being served.
	for accept, expired := range map[string]string{
		"":                      "event: expired\ndata: {\"Instance\":%q,\"Revision\":%d,\"Time\":\"",
		reserver.BatchMediaType: "{\"Instance\":%q,\"Revision\":%d,\"Expired\":true}",
	} {
		w, r := &recordedStream{}, httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", accept)
		f.api.followStream(f.api.sinkFor(r, newConnection(t.Context(), w, time.Second)), old, make(chan struct{}),
			&refusalFeed{})
		assert.Contains(t, w.String(), fmt.Sprintf(expired, f.api.instance, old))
	}
}

// A reader that takes nothing is cut off, and its place is free again.
func TestSlowWatcherIsCutOff(t *testing.T) {
	for name, header := range map[string]string{"events": "", "batches": "Accept: " + reserver.BatchMediaType + "\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			f := newFixture(t, Limits{WriteTimeout: 3 * time.Second})
			f.listen(func(*http.Server) {})
			conn, err := net.Dial("tcp", f.server.Listener.Addr().String())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			_, err = fmt.Fprintf(conn, "GET /v1/watch?revision=%d HTTP/1.1\r\nHost: x\r\n%s\r\n", f.ledger.Revision(), header)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return f.api.watchers.Had() == 1 }, time.Minute, time.Millisecond)
			// Names as long as can be fill the kernel's buffers soon.
			long := strings.Repeat("n", 100_000)
			require.Eventually(t, func() bool {
				for i := range 10 {
					f.ledger.ObserveNode(ledger.NodeObservation{Name: long + fmt.Sprint(i)})
					f.ledger.RemoveNode(long + fmt.Sprint(i))
				}
				return f.api.watchers.Had() == 0
			}, time.Minute, 20*time.Millisecond)
		})
	}
}
