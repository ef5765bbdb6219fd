package httpjson

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A caller has its part and no more, whatever of it is free, and all callers together what there is.
func TestSharesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewShares(100, 60, time.Second)
		greedy, err := s.Take(t.Context(), "greedy", math.MaxInt64)
		require.NoError(t, err)
		assert.Equal(t, int64(60), s.Had())
		start := time.Now()
		_, err = s.Take(t.Context(), "greedy", 1)
		require.ErrorIs(t, err, errBusy)
		assert.Equal(t, time.Second, time.Since(start))
		modest, err := s.Take(t.Context(), "modest", 40)
		require.NoError(t, err)
		_, err = s.Take(t.Context(), "late", 1)
		require.ErrorIs(t, err, errBusy)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start = time.Now()
		_, err = s.Take(ctx, "late", 1)
		require.ErrorIs(t, err, errBusy, "its client has gone")
		assert.Zero(t, time.Since(start))
		greedy()
		greedy()
		assert.Equal(t, int64(40), s.Had())
		late, err := s.Take(t.Context(), "late", 60)
		require.NoError(t, err, "it was given back once")
		late()
		modest()
		assert.Zero(t, s.Had())
		assert.Empty(t, s.callers)
	})
}

// What grows has its part, too, and gives all of it back.
func TestPortionsGrow(t *testing.T) {
	s := NewShares(100, 60, 0)
	p := s.begin("a")
	for _, size := range []int64{10, 30, 20} {
		require.NoError(t, p.grow(t.Context(), size))
	}
	assert.Equal(t, int64(30), s.Had())
	other := s.begin("a")
	require.ErrorIs(t, other.grow(t.Context(), 31), errBusy)
	require.NoError(t, other.grow(t.Context(), 30))
	require.NoError(t, s.begin("b").grow(t.Context(), 40))
	require.ErrorIs(t, s.begin("c").grow(t.Context(), 1), errBusy)
	other.giveBack()
	p.giveBack()
	assert.Equal(t, int64(40), s.Had())
}

// Callers take turns, whatever number of requests each has sent.
func TestCallersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewShares(1, 1, time.Hour)
		leave, err := s.Take(t.Context(), "flood", 1)
		require.NoError(t, err)
		var mu sync.Mutex
		var order []string
		wait := func(caller string) {
			go func() {
				leave, err := s.Take(t.Context(), caller, 1)
				if assert.NoError(t, err) {
					mu.Lock()
					order = append(order, caller)
					mu.Unlock()
					<-time.After(time.Second)
					leave()
				}
			}()
			synctest.Wait()
		}
		for range 50 {
			wait("flood")
		}
		wait("scheduler")
		wait("scheduler")
		wait("other")
		leave()
		<-time.After(time.Minute)
		synctest.Wait()
		require.Len(t, order, 53)
		assert.Equal(t, []string{"scheduler", "other", "flood", "scheduler", "flood", "flood"}, order[:6])
	})
}
