package rest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// Whoever asks again and again does not have the API server list all pods for each request, and a server that ends does
// not wait for a comparison.
func TestOneRequestIsComparedForAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Limits{})
		f.diff = func(ctx context.Context) (*reserver.DiffAnswer, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		first := make(chan int, 1)
		go func() { first <- f.serve(http.MethodGet, "/debug/diff", "").Code }()
		synctest.Wait()
		second := f.serve(http.MethodGet, "/debug/diff", "")
		assert.Equal(t, http.StatusTooManyRequests, second.Code)
		assert.Contains(t, second.Body.String(), "ask again in a moment")
		began := time.Now()
		close(f.done)
		assert.Equal(t, http.StatusServiceUnavailable, <-first)
		assert.Zero(t, time.Since(began), "it ended with the server, and not with its time")
	})
}

func TestWhyNothingWasCompared(t *testing.T) {
	for want, err := range map[string]error{
		"the ledger could not be compared with the API server: no route": errors.New("no route"),
		"not all pods have been read yet": httpjson.Errorf(http.StatusServiceUnavailable,
			"not all pods have been read yet"),
	} {
		f := newFixture(t, Limits{})
		f.diff = func(context.Context) (*reserver.DiffAnswer, error) { return nil, err }
		answer := f.serve(http.MethodGet, "/debug/diff", "")
		assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
		assert.Contains(t, answer.Body.String(), want)
	}
	f := newFixture(t, Limits{})
	require.Equal(t, http.StatusBadRequest, f.serve(http.MethodGet, "/debug/diff?node=a", "").Code)
}
