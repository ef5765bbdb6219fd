package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/background"
	"github.com/globalreserve/globalreserve/test/bubble"
)

func TestWaitForPods(t *testing.T) {
	news := map[string]func(s sink[v1.Pod, Pod]) error{
		"a pod":      func(s sink[v1.Pod, Pod]) error { return s.Update(aPod("a", 20)) },
		"a new pod":  func(s sink[v1.Pod, Pod]) error { return s.Add(aPod("b", 20)) },
		"a deletion": func(s sink[v1.Pod, Pod]) error { return s.Delete(aPod("a", 20)) },
		"a bookmark": func(s sink[v1.Pod, Pod]) error { return s.Bookmark("20") },
		"a list":     func(s sink[v1.Pod, Pod]) error { return s.Replace(nil, "20") },
	}
	bubble.Each(t, news, func(t *testing.T, tell func(s sink[v1.Pod, Pod]) error) {
		c := newCache()
		s := c.podSink()
		require.NoError(t, s.Add(aPod("a", 10)))
		require.NoError(t, c.WaitForPods(t.Context(), 10), "known already")

		done := map[uint64]chan error{}
		for version := range uint64(3) {
			result := make(chan error, 1)
			done[19+version] = result
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				result <- c.WaitForPods(ctx, 19+version)
			}()
		}
		synctest.Wait()
		require.NoError(t, s.Update(aPod("a", 11)), "is not what they wait for")
		synctest.Wait()
		for version, result := range done {
			assert.Empty(t, result, "%d", version)
		}
		require.NoError(t, tell(s))
		require.NoError(t, s.Update(aPod("c", 15)), "old news take nothing back")
		synctest.Wait()
		require.NoError(t, <-done[19])
		require.NoError(t, <-done[20])
		assert.ErrorIs(t, <-done[21], context.DeadlineExceeded)
	})
}

// Who waited for a deletion finds the capacity free.
func TestWaitForPodsComesAfterTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(objects(aPod("a", 1, on("n1"))), objects(aNode("n1", 1, "4")))
		defer background.Run(t, f.Run)()
		pass(time.Second)
		bound := make(chan bool, 1)
		go func() {
			assert.NoError(t, f.WaitForPods(t.Context(), 30))
			_, ok := f.ledger.Allocation(ledger.PodRef{Namespace: "default", Name: "a", UID: "a-uid"})
			bound <- ok
		}()
		synctest.Wait()
		f.podServer.gap(30)
		pass(time.Minute)
		assert.False(t, <-bound)
	})
}
