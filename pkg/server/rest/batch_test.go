package rest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// batched asks for a watch in batches, as a client may say that.
var batched = []string{"Accept", "text/html;q=0.5, application/x-ndjson; q=0.9"}

// nextBatch reads a line.
func (w *watcher) nextBatch() *reserver.WatchBatch {
	w.t.Helper()
	require.True(w.t, w.events.Scan(), "the stream has ended")
	batch := &reserver.WatchBatch{}
	require.NoError(w.t, json.Unmarshal(w.events.Bytes(), batch), w.events.Text())
	return batch
}

// dataOf is what the server-sent event of a change has.
func dataOf(c *reserver.WatchChange) (kind reserver.EventType, revision uint64, data any) {
	switch {
	case c.Allocation != nil:
		return reserver.AllocationEvent, c.Allocation.Revision, c.Allocation
	case c.Slot != nil:
		return reserver.SlotEvent, c.Slot.Revision, c.Slot
	default:
		return reserver.NodeEvent, c.Node.Revision, c.Node
	}
}

// Batches tell the same as server-sent events, in the same order, from a snapshot or a revision on.
func TestBatchesTellWhatEventsTell(t *testing.T) {
	f := newFixture(t, Limits{})
	f.reserve(gangOf("node-1", aPod("a", "1", "1Gi")))
	start := f.ledger.Revision()
	events, batches := f.watch(""), f.watch("", batched...)
	snapshot, _ := expect[reserver.WatchSnapshot](events, "snapshot")
	first := batches.nextBatch()
	require.NotNil(t, first.Snapshot)
	same := *first.Snapshot
	assert.ElementsMatch(t, snapshot.Nodes, same.Nodes)
	assert.Equal(t, snapshot.Slots, same.Slots)
	assert.Equal(t, []any{f.api.instance, start}, []any{first.Instance, first.Revision})
	events.caughtUp()
	caughtUp := batches.nextBatch()
	assert.WithinDuration(t, time.Now(), caughtUp.Time, time.Minute)
	caughtUp.Time = time.Time{}
	assert.Equal(t, &reserver.WatchBatch{Instance: f.api.instance, Revision: start, CaughtUp: true}, caughtUp)

	f.bind(aPod("a", "1", "1Gi"), "node-2") // a slot ends, an allocation begins
	f.AddNode("node-4", "4", "8Gi")
	f.ledger.RemoveNode("node-4")
	f.reserve(gangOf("node-3", aPod("b", "1", "1Gi")))
	var last time.Time
	for told := start; told < f.ledger.Revision(); {
		batch := batches.nextBatch()
		for i := range batch.Changes {
			kind, revision, data := dataOf(&batch.Changes[i])
			if at := batch.Changes[i].Time; at != nil {
				last = *at
			}
			told++
			assert.Equal(t, told, revision)
			e, ok := events.next()
			require.True(t, ok)
			assert.Equal(t, []string{string(kind), reserver.EventID(f.api.instance, told)}, []string{e.name, e.id})
			same := reflect.New(reflect.TypeOf(data).Elem()).Interface()
			require.NoError(t, json.Unmarshal([]byte(e.data), same))
			assert.Equal(t, same, (&reserver.Event{
				Type: kind, Time: last, Allocation: batch.Changes[i].Allocation, Slot: batch.Changes[i].Slot,
				Node: batch.Changes[i].Node,
			}).Stamped())
		}
		assert.Equal(t, told, batch.Revision)
	}
	resumed := f.watch("", append(batched, "Last-Event-ID", reserver.EventID(f.api.instance, start+1))...).nextBatch()
	_, revision, _ := dataOf(&resumed.Changes[0])
	assert.Equal(t, start+2, revision)
}

// Watchers share the bytes of what they are told: it is encoded for the first of them. Who is further behind is told as
// much as leads to where the others are.
func TestBatchesAreEncodedOnce(t *testing.T) {
	f := newFixture(t, Limits{})
	start := f.ledger.Revision()
	change := func() { f.reserve(gangOf("node-1", aPod(fmt.Sprint("p", f.ledger.Revision()), "1m", "1Mi"))) }
	for range 4 {
		change()
	}
	later, ok := f.api.batchAfter(start + 2)
	require.True(t, ok)
	assert.Equal(t, []uint64{start + 2, start + 4}, []uint64{later.after, later.last})
	change()
	for range 3 {
		same, ok := f.api.batchAfter(start + 2)
		require.True(t, ok)
		assert.Same(t, &later.line[0], &same.line[0])
	}
	behind, ok := f.api.batchAfter(start)
	require.True(t, ok)
	assert.Equal(t, []uint64{start, start + 2}, []uint64{behind.after, behind.last})
	next, ok := f.api.batchAfter(later.last)
	require.True(t, ok)
	assert.Equal(t, start+5, next.last)
	none, ok := f.api.batchAfter(next.last)
	assert.True(t, ok)
	assert.Equal(t, batch{after: start + 5, last: start + 5}, none)
	for range 70 { // more than the journal keeps, and than batches are kept
		change()
		f.api.batchAfter(f.ledger.Revision() - 1)
	}
	_, ok = f.api.batchAfter(start)
	assert.False(t, ok)
}

// The first change is told at once. What comes soon after that travels together.
func TestBatchesGatherChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBareFixture(t)
		f.NoKind = true
		f.start(Limits{})
		defer f.stop()
		w := &recordedStream{began: time.Now()}
		s := &batchStream{connection: newConnection(t.Context(), w, time.Second), api: f.api}
		wake, cancel := f.ledger.Subscribe()
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.api.followStream(s, f.ledger.Revision(), wake, &refusalFeed{})
		}()
		synctest.Wait()
		const apart = batchPause * 3 / 10
		for i := range 7 {
			f.AddNode(fmt.Sprint("new-", i), "1", "1Gi")
			synctest.Wait()
			<-time.After(apart)
		}
		<-time.After(batchPause)
		close(f.done)
		<-ended
		assert.Equal(t, []time.Duration{0, 0, batchPause, 2 * batchPause}, w.at,
			"the bookmark, one change, and two times three")
		lines := strings.Split(strings.TrimSpace(w.String()), "\n")
		require.Len(t, lines, 4)
		for i, changes := range []int{0, 1, 3, 3} {
			var batch reserver.WatchBatch
			require.NoError(t, json.Unmarshal([]byte(lines[i]), &batch))
			assert.Len(t, batch.Changes, changes)
		}
	})
}

// A reader that takes nothing holds nobody up: others go on being told.
func TestSlowWatcherOfBatchesHoldsNobodyUp(t *testing.T) {
	f := newFixture(t, Limits{WriteTimeout: time.Minute})
	after := fmt.Sprint("?revision=", f.ledger.Revision())
	f.watch(after, batched...) // reads nothing
	quick := f.watch(after, batched...)
	quick.events.Buffer(nil, 1<<30)
	require.True(t, quick.nextBatch().CaughtUp)
	long := strings.Repeat("n", 100_000) // names as long as can be fill the kernel's buffers soon
	for range 20 {                       // 40 MB that nobody reads are more than the kernel keeps
		for i := range 10 {
			f.ledger.ObserveNode(ledger.NodeObservation{Name: long + fmt.Sprint(i)})
			f.ledger.RemoveNode(long + fmt.Sprint(i))
		}
		for told := uint64(0); told < f.ledger.Revision(); {
			told = quick.nextBatch().Revision
		}
	}
}

// Whoever may make pods may give them a node and all ports there are. What a watcher is told at one time does not grow
// with that, in a snapshot or later.
func TestPodsWithManyPortsAreToldInPieces(t *testing.T) {
	for name, accept := range map[string][]string{"batches": batched, "events": nil} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Limits{})
			request := &resources.Request{}
			for port := range int32(15_000) {
				key := resources.PortKey{Protocol: v1.ProtocolTCP, Port: port + 1}
				request.Ports = append(request.Ports, resources.HostPort{PortKey: key, IP: "0.0.0.0"})
			}
			before := f.ledger.Revision()
			for i := range 8 {
				ref := ledger.PodRef{Namespace: "n", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint(i))}
				f.ledger.ObservePod(ledger.PodObservation{Pod: ref, Node: "node-1", Request: request})
			}
			for _, from := range []string{fmt.Sprint("?revision=", before), ""} {
				w := f.watch(from, accept...)
				w.events.Buffer(nil, 1<<30)
				for told := 0; told < 8; {
					require.True(t, w.events.Scan())
					require.Less(t, len(w.events.Bytes()), 1<<20, from)
					told += strings.Count(w.events.Text(), `"pod-`)
				}
			}
		})
	}
}
