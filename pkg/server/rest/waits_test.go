package rest

import (
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Who asks about pods that have to be read live waits for the API server, and nobody else does.
func TestWhatIfKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Limits{})
		f.API.Answer(time.Hour, nil)
		var asks sync.WaitGroup
		for range runtime.GOMAXPROCS(0) + 2 {
			asks.Go(func() { f.serve(http.MethodPost, "/v1/whatif", `{"Pods":[{"metadata":{"name":"made-up"}}]}`) })
		}
		synctest.Wait()
		began := time.Now()
		assert.Equal(t, http.StatusOK, f.serve(http.MethodGet, "/v1/nodes", "").Code)
		assert.Zero(t, time.Since(began))
		asks.Wait()
	})
}
