package testbed

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// Changes follows the ledger of a server from now on, until ctx ends. What it returns is to be ranged over at once, or
// changes are read late.
func Changes(ctx context.Context, t testing.TB, url string) iter.Seq[reserver.WatchChange] {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+WatchPath, http.NoBody)
	require.NoError(t, err)
	response, err := Streaming.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	lines := json.NewDecoder(response.Body)
	next := func() (batch reserver.WatchBatch, ok bool) { return batch, lines.Decode(&batch) == nil }
	for {
		if batch, ok := next(); !ok || batch.CaughtUp {
			require.True(t, ok, "the watch has ended")
			break
		}
	}
	return func(yield func(reserver.WatchChange) bool) {
		for batch, ok := next(); ok; batch, ok = next() {
			for _, change := range batch.Changes {
				if !yield(change) {
					return
				}
			}
		}
	}
}
