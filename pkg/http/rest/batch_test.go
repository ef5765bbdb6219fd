package rest

import (
	"encoding/json"
	"fmt"
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

// The first change is sent at once. What comes soon after that travels together.
func TestBatchesGatherChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBareFixture(t)
		f.NoKind = true
		f.start(Limits{})
		defer f.stop()
		w := &recordedStream{began: time.Now()}
		s := f.api.newStream(t.Context(), w)
		wake, cancel := f.ledger.Subscribe()
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.follow(f.ledger.Revision(), wake)
		}()
		synctest.Wait()
		const apart = batchPause * 3 / 10
		for i := range 7 {
			f.AddNode(fmt.Sprint("new-", i), "1", "1Gi")
			synctest.Wait()
			<-time.After(apart)
		}
		<-time.After(batchPause)
		f.endAll()
		<-ended
		assert.Equal(t, []time.Duration{0, 0, batchPause, 2 * batchPause}, w.at,
			"that it has caught up, one change, and two times three")
		lines := strings.Split(strings.TrimSpace(w.String()), "\n")
		require.Len(t, lines, 4)
		for i, changes := range []int{0, 1, 3, 3} {
			var batch reserver.WatchBatch
			require.NoError(t, json.Unmarshal([]byte(lines[i]), &batch))
			assert.Len(t, batch.Changes, changes)
		}
	})
}

// A reader that takes nothing holds nobody up: others go on receiving.
func TestSlowWatcherOfBatchesHoldsNobodyUp(t *testing.T) {
	f := newFixture(t, Limits{WriteTimeout: time.Minute})
	after := fmt.Sprint("?revision=", f.ledger.Revision())
	f.watch(after) // reads nothing
	quick := f.watch(after)
	quick.caughtUp()
	long := strings.Repeat("n", 100_000) // names as long as can be fill the kernel's buffers soon
	for range 20 {                       // 40 MB that nobody reads are more than the kernel keeps
		for i := range 10 {
			f.ledger.ObserveNode(ledger.NodeObservation{Name: long + fmt.Sprint(i)})
			f.ledger.RemoveNode(long + fmt.Sprint(i))
		}
		for told := uint64(0); told < f.ledger.Revision(); {
			told = quick.next().Revision
		}
	}
}

// A user who may make pods may give them a node and all ports. What a watcher is sent at one time does not grow
// with that, in a snapshot or later.
func TestPodsWithManyPortsAreSentInPieces(t *testing.T) {
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
		w := f.watch(from)
		for sent := 0; sent < 8; {
			require.True(t, w.lines.Scan())
			require.Less(t, len(w.lines.Bytes()), 1<<20, from)
			sent += strings.Count(w.lines.Text(), `"pod-`)
		}
	}
}
