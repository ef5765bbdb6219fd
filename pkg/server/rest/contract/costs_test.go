//go:build costs && unix

package contract

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/test/costs"
)

// A watch is told of 100 binds in one batch.
func TestCosts(t *testing.T) {
	batch := reserver.WatchBatch{Instance: "ABCDEFGHIJ", Revision: 100}
	for i := range 100 {
		batch.Changes = append(batch.Changes, reserver.WatchChange{Allocation: &reserver.WatchAllocation{
			Revision: uint64(i + 1), Type: "AllocationBound", Allocation: reserver.Allocation{
				Namespace: "production", Pod: fmt.Sprintf("checkout-6b8d7c9f54-%06d", i),
				UID:  fmt.Sprintf("3f1c9a52-0000-4000-8000-%012d", i),
				Node: "ip-10-0-1-17.eu-central-1.compute.internal", State: "Bound", Scheduler: "default-scheduler",
				Requests: reserver.Amounts{"cpu": 500, "memory": 1 << 30, "pods": 1},
			},
		}})
	}
	line, err := json.Marshal(&batch)
	require.NoError(t, err)
	line = append(line, '\n')
	send := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for {
			select {
			case <-send:
				_, _ = w.Write(line)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	w := watch(t, client.Options{URL: server.URL})
	costs.Check(t, "read a batch of 100 changes", func() {
		send <- struct{}{}
		for range 100 {
			if event := <-w.Events(); event.Type != reserver.AllocationEvent {
				t.Error(event.Type, event.Err)
			}
		}
	})
}
