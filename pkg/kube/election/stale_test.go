package election

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
)

// knowledge is whether a server hears of changes, and whether it knows of another one.
type knowledge struct{ stale, alone atomic.Bool }

func (k *knowledge) set(o *Options) {
	o.Stale = func() string {
		if k.stale.Load() {
			return "nothing was heard of pods"
		}
		return ""
	}
	o.StandBy = func() bool { return !k.alone.Load() }
}

// A leader that does not hear of changes any more lets another server decide, as soon as what it decided before has
// come to its end.
func TestStaleLeaderGivesTheLeaseUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var first, second knowledge
		a, b := w.elector("a", first.set), w.elector("b", second.set)
		stopA, stopB := w.runBoth(a, b)
		<-time.After(untilBetween)
		require.Empty(t, a.Leads())

		first.stale.Store(true)
		<-time.After(DefaultTimes().Lease / 2)
		first.stale.Store(false)
		<-time.After(DefaultTimes().Lease)
		require.Empty(t, a.Leads(), "it missed little")

		first.stale.Store(true)
		<-time.After(DefaultTimes().Lease - 2*DefaultTimes().Retry)
		require.Empty(t, a.Leads(), "what it decided may be under way")
		<-time.After(4 * DefaultTimes().Retry)
		assert.NotEmpty(t, a.Leads())
		require.Empty(t, b.Leads(), "another server decides")
		require.ErrorIs(t, stopA(), errStale)
		require.NoError(t, stopB())
	})
}

// A leader without another server keeps what it remembers, and decides again as soon as it hears of changes.
func TestStaleLeaderWithoutAnother(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var only knowledge
		only.alone.Store(true)
		e := w.elector("only", only.set)
		stop := w.run(e)
		<-time.After(time.Second)
		only.stale.Store(true)
		<-time.After(5 * time.Minute)
		assert.Empty(t, e.Leads())
		assert.Equal(t, 1, w.took)
		require.NoError(t, stop())
	})
}

// A server that does not hear of changes does not take the Lease, and takes it when it does.
func TestStaleServerDoesNotTakeTheLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var first, second knowledge
		a, b := w.elector("a", first.set), w.elector("b", second.set)
		stopA, stopB := w.runBoth(a, b)
		second.stale.Store(true)
		<-time.After(time.Minute)
		require.NoError(t, stopA())
		<-time.After(time.Minute)
		assert.Equal(t, "no server decides now; ask again in a moment", b.Leads())
		assert.Empty(t, ptr.Deref(w.lease().HolderIdentity, ""))
		assert.Equal(t, 1, w.took)
		second.stale.Store(false)
		<-time.After(10 * time.Second)
		assert.Empty(t, b.Leads())
		require.NoError(t, stopB())
	})
}
