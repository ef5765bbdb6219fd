package rest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// watcher reads a stream.
type watcher struct {
	t      testing.TB
	lines  *bufio.Scanner
	cancel context.CancelFunc
	// changes are those of the last line that were not returned yet.
	changes []reserver.WatchChange
}

func (f *fixture) watch(query string) *watcher {
	f.t.Helper()
	if f.server == nil {
		f.listen(func(*http.Server) {})
	}
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.server.URL+"/v1/watch"+query, http.NoBody)
	require.NoError(f.t, err)
	resp, err := f.server.Client().Do(req)
	require.NoError(f.t, err)
	require.Equal(f.t, http.StatusOK, resp.StatusCode)
	require.Equal(f.t, reserver.BatchMediaType, resp.Header.Get("Content-Type"))
	f.t.Cleanup(func() {
		cancel()
		_ = resp.Body.Close()
	})
	scanner := bufio.NewScanner(resp.Body)
	scanner.Buffer(nil, 1<<30)
	return &watcher{t: f.t, lines: scanner, cancel: cancel}
}

// next returns the next line; nil where the stream has ended.
func (w *watcher) next() *reserver.WatchBatch {
	w.t.Helper()
	if !w.lines.Scan() {
		return nil
	}
	batch := &reserver.WatchBatch{}
	require.NoError(w.t, json.Unmarshal(w.lines.Bytes(), batch), w.lines.Text())
	return batch
}

// change returns the next change.
func (w *watcher) change() (change reserver.WatchChange, revision uint64) {
	w.t.Helper()
	for len(w.changes) == 0 {
		batch := w.next()
		require.NotNil(w.t, batch, "the stream has ended")
		w.changes = batch.Changes
	}
	change, w.changes = w.changes[0], w.changes[1:]
	revision = revisionOf(&change)
	return change, revision
}

func revisionOf(c *reserver.WatchChange) uint64 {
	switch {
	case c.Allocation != nil:
		return c.Allocation.Revision
	case c.Slot != nil:
		return c.Slot.Revision
	default:
		return c.Node.Revision
	}
}

// caughtUp reads up to that all there was has been sent, and returns up to which revision.
func (w *watcher) caughtUp() uint64 {
	w.t.Helper()
	for {
		batch := w.next()
		require.NotNil(w.t, batch, "the stream has ended")
		if batch.CaughtUp {
			assert.WithinDuration(w.t, time.Now(), batch.Time, time.Minute)
			return batch.Revision
		}
	}
}

func TestWatchFromSnapshot(t *testing.T) {
	f := newFixture(t, Limits{})
	f.reserve(gangOf("node-1", aPod("a", "1", "1Gi")))
	w := f.watch("")
	start := f.ledger.Revision()
	first := w.next()
	assert.Equal(t, []any{f.api.instance, start}, []any{first.Instance, first.Revision})
	snapshot := first.Snapshot
	assert.Equal(t, f.api.instance, snapshot.Instance)
	assert.Equal(t, start, snapshot.Revision)
	assert.False(t, snapshot.More)
	assert.Len(t, snapshot.Nodes, 3)
	assert.Empty(t, snapshot.Allocations)
	require.Len(t, snapshot.Slots, 1)
	assert.Equal(t, reserver.Amounts{"cpu": 1000, "memory": gib, "pods": 1}, snapshot.Slots[0].Slot.Requests)
	assert.Equal(t, start, w.caughtUp())

	f.bind(aPod("a", "1", "1Gi"), "node-2")
	change, revision := w.change()
	assert.Equal(t, start+1, revision)
	slot := change.Slot
	assert.Equal(t, "SlotReleased", slot.Type)
	assert.Empty(t, slot.Slot.Reservation)
	assert.Equal(t, []string{"team-a", "a", "node-1"},
		[]string{slot.Slot.Namespace, slot.Slot.Slot.Pod, slot.Slot.Slot.Node})
	change, _ = w.change()
	assert.Equal(t, "AllocationBound", change.Allocation.Type)
	assert.Equal(t, "node-2", change.Allocation.Allocation.Node)
	assert.Equal(t, "Bound", change.Allocation.Allocation.State)

	f.AddNode("node-4", "4", "8Gi")
	change, _ = w.change()
	assert.Equal(t, &reserver.WatchNode{
		Revision: start + 3, Type: "NodeUpdated",
		Node: reserver.WatchedNode{
			Name: "node-4", UID: "uid-node-4",
			Allocatable: reserver.Amounts{"cpu": 4000, "memory": 8 * gib, "pods": 110},
		},
	}, change.Node)
	f.label("node-4", map[string]string{"agentpool": "blue"})
	change, _ = w.change()
	node := change.Node
	assert.Equal(t, "NodeLabeled", node.Type)
	assert.Equal(t, map[string]string{"agentpool": "blue"}, node.Node.Labels)
	assert.Equal(t, "blue", node.Node.Pool)
	assert.Equal(t, reserver.Amounts{"cpu": 4000, "memory": 8 * gib, "pods": 110}, node.Node.Allocatable)
	f.ledger.RemoveNode("node-4")
	change, _ = w.change()
	assert.Equal(t, "NodeRemoved", change.Node.Type)
}

func TestWatchResumes(t *testing.T) {
	f := newFixture(t, Limits{})
	start := f.ledger.Revision()
	for i := range 5 {
		f.reserve(gangOf("node-1", aPod(fmt.Sprint("p", i), "100m", "1Mi")))
	}
	for query, after := range map[string]uint64{
		fmt.Sprint(start): start, fmt.Sprint(f.api.instance, "-", start+2): start + 2, fmt.Sprint(start + 5): start + 5,
		"1000": 1000, // from where the ledger has begun
	} {
		w := f.watch("?revision=" + query)
		for want := after + 1; want <= start+5; want++ {
			_, revision := w.change()
			assert.Equal(t, want, revision, query)
		}
		assert.Equal(t, start+5, w.caughtUp(), query)
	}
}

// Large accounts come in parts, and only the last has a revision to resume from.
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
		batch := w.next()
		snapshot := batch.Snapshot
		more = snapshot.More
		assert.Equal(t, more, batch.Revision == 0)
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
		assert.Equal(t, &reserver.WatchBatch{Instance: f.api.instance}, w.next())
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
	f.endAll()
	assert.Nil(t, w.next())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	assert.NoError(t, f.server.Config.Shutdown(ctx), "no stream holds the server up")
}

// A watcher that is far behind, and slow, does not hold up a server that ends.
func TestWatchWithABacklogEndsWithTheServer(t *testing.T) {
	f := newFixture(t, Limits{})
	begin := f.ledger.Revision()
	for i := range 3 * watchBatch { // of which the journal keeps as many as it can
		f.AddNode(fmt.Sprint("new-", i), "1", "1Gi")
	}
	after := max(begin, f.ledger.Revision()-60)
	f.endAll()
	sent := &recordedStream{}
	f.api.newStream(t.Context(), sent).follow(after, make(chan struct{}))
	assert.Empty(t, sent.String())
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

// A watcher that the journal has run past is notified, not left with a gap.
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
	sent := &recordedStream{}
	f.api.newStream(t.Context(), sent).follow(old, make(chan struct{}))
	assert.JSONEq(t, fmt.Sprintf(`{"Instance":%q,"Revision":%d,"Expired":true}`, f.api.instance, old), sent.String())
}

// A reader that takes nothing is cut off, and its place is free again.
func TestSlowWatcherIsCutOff(t *testing.T) {
	t.Parallel() // it waits most of the time
	f := newFixture(t, Limits{WriteTimeout: 3 * time.Second})
	f.listen(func(*http.Server) {})
	conn, err := net.Dial("tcp", f.server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "GET /v1/watch?revision=%d HTTP/1.1\r\nHost: x\r\n\r\n", f.ledger.Revision())
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
}
