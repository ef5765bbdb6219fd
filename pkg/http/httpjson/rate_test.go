package httpjson

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pace sends requests of a caller one after another, in no time, and returns how many were let through, and the answer
// to the last one.
func pace(handler http.Handler, caller string, n int) (served int, last *httptest.ResponseRecorder) {
	for range n {
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		r.Header.Set("Caller", caller)
		last = httptest.NewRecorder()
		handler.ServeHTTP(last, r)
		if last.Code == http.StatusOK {
			served++
		}
	}
	return served, last
}

// A caller has so many requests in a second and no more, whatever the others send.
func TestRequestsOfACallerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := NewIntake(1<<20, byHeader)
		handler := in.Paced(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		served, last := pace(handler, "flood", maxBurst+5)
		assert.Equal(t, maxBurst, served)
		assert.Equal(t, http.StatusTooManyRequests, last.Code)
		assert.Equal(t, "1", last.Header().Get("Retry-After"))
		assert.Contains(t, last.Body.String(), "more than 8000 requests a second")
		assert.Equal(t, int64(5), in.TooFast.Load())
		served, _ = pace(handler, "scheduler", 1000)
		assert.Equal(t, 1000, served)
		<-time.After(time.Second)
		served, _ = pace(handler, "flood", maxBurst)
		assert.Equal(t, maxRate, served)
	})
}

// Whoever invents callers takes no more memory than so many.
func TestRatesAreBounded(t *testing.T) {
	rates := NewRates(1, 1)
	now := time.Unix(0, 0)
	for i := range 3 * maxRated {
		require.True(t, rates.Take(fmt.Sprint(i), now))
	}
	assert.Equal(t, maxRated, rates.callers.Len())
	assert.False(t, rates.Take(fmt.Sprint(3*maxRated-1), now))
}
