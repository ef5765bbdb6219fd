package election

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// backup is the Lease by now.
func (w *world) backup() *coordinationv1.Lease {
	lease, err := w.core.CoordinationV1().Leases("kube-system").Get(w.t.Context(), LeaseName, metav1.GetOptions{})
	require.NoError(w.t, err)
	return lease.DeepCopy()
}

// etcd is restored from a backup: no server decides by what it knew, those that stand by included. The next one has a
// term after those that the backup does not know of.
func TestEtcdIsRestored(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first, second := w.elector("first", nil), w.elector("second", nil)
		stop := w.run(first)
		<-time.After(time.Second)
		early, backup := w.term(), w.backup()
		stopSecond := w.run(second)
		<-time.After(time.Minute)
		require.Empty(t, first.Leads())

		w.restore(backup, early-60)
		<-time.After(3 * DefaultTimes().Retry)
		assert.Contains(t, first.Leads(), "etcd was restored from a backup")
		require.ErrorIs(t, stop(), errRestored)
		assert.Contains(t, second.Leads(), "etcd was restored from a backup")
		require.ErrorIs(t, stopSecond(), errRestored)

		third := w.elector("third", nil)
		stop = w.run(third)
		<-time.After(time.Minute)
		require.Empty(t, third.Leads())
		assert.Greater(t, third.Term().Get(), first.Term().Get())
		require.NoError(t, stop())
	})
}

// A server without an election that waits for the Lease notices it, too, and so does one that cannot take over.
func TestEtcdIsRestoredBeforeServersDecide(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first := w.elector("first", nil)
		stop := w.run(first)
		<-time.After(time.Second)
		backup := w.backup()
		alone := w.elector("alone", func(o *Options) { o.Alone = true })
		stopAlone := w.run(alone)
		<-time.After(time.Minute)
		require.NotEmpty(t, alone.Leads())
		w.restore(backup, w.term())
		<-time.After(time.Minute)
		require.ErrorIs(t, stop(), errRestored)
		require.ErrorIs(t, stopAlone(), errRestored)
	})
	inWorld(t, func(t *testing.T, w *world) {
		e := w.elector("first", func(o *Options) {
			o.TakeOver = func(ctx context.Context, _ time.Duration) error { <-ctx.Done(); return ctx.Err() }
		})
		stop := w.run(e)
		<-time.After(time.Second)
		backup := w.backup()
		<-time.After(time.Minute)
		w.restore(backup, w.term())
		<-time.After(time.Minute)
		assert.False(t, e.mayWrite())
		renewed := w.lease().RenewTime
		<-time.After(time.Minute)
		assert.Equal(t, renewed, w.lease().RenewTime, "the lease is for others")
		require.Error(t, stop())
	})
}

// The API server is away while etcd is restored, for longer than the Lease lasts: that nobody else has had the Lease
// says nothing then.
func TestEtcdIsRestoredWhileServersAreCutOff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := w.elector("only", nil)
		cut := cutOff(e)
		stop := w.run(e)
		<-time.After(time.Second)
		backup := w.backup()
		<-time.After(time.Minute)
		require.Empty(t, e.Leads())
		cut.Store(true)
		<-time.After(time.Minute)
		w.restore(backup, w.term())
		cut.Store(false)
		<-time.After(time.Minute)
		assert.Contains(t, e.Leads(), "etcd was restored from a backup")
		require.ErrorIs(t, stop(), errRestored)
		assert.Zero(t, w.resumed)
	})
}
