package election

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

var errNoAnswer = errors.New("connection reset by peer")

// decidesAfter waits until a server decides and returns how long after a moment that is.
func decidesAfter(e *Elector, since time.Time) time.Duration {
	for e.Leads() != "" {
		<-time.After(10 * time.Millisecond)
	}
	return time.Since(since)
}

// A leader that cannot renew its lease leaves it to its end, although it could be given up by then: what it has sent
// may be past the fence and not carried out yet. Whoever takes over waits until the API server has abandoned what was
// sent before the fence came into force. A leader that gave the lease up has left nothing.
func TestTakeOverAwaitsWrites(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		times := DefaultTimes()
		var raised time.Time
		w.own.PrependReactor("update", "ledgerterms", func(clienttesting.Action) (bool, runtime.Object, error) {
			raised = time.Now()
			return false, nil, nil
		})
		first, second, third := w.elector("first", nil), w.elector("second", nil), w.elector("third", nil)
		var away atomic.Bool // for renewals: giving the lease up would be carried out
		w.core.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			lease := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
			return away.Load() && ptr.Deref(lease.Spec.HolderIdentity, "") == "first", nil, errors.New("etcd is slow")
		})
		stopFirst, stopSecond := w.runBoth(first, second)
		<-time.After(untilBetween)
		away.Store(true)
		renewed := w.lease().RenewTime.Time
		assert.GreaterOrEqual(t, decidesAfter(second, renewed), times.Lease+times.write())
		assert.GreaterOrEqual(t, time.Since(raised), fenceSpread+times.write())
		_ = stopFirst() // by the time it may have seen the other one

		stopThird := w.run(third)
		<-time.After(untilBetween)
		stopped := time.Now()
		require.NoError(t, stopSecond())
		assert.Less(t, decidesAfter(third, stopped), time.Second)
		require.NoError(t, stopThird())
	})
}

// A server that cannot take over from one that is gone leaves the waiting to the next one.
func TestFailedTakeOverOwesTheWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first, second := w.elector("first", nil), w.elector("second", nil)
		away := cutOff(first)
		var forbidden atomic.Bool
		w.own.PrependReactor("update", "ledgerterms", func(clienttesting.Action) (bool, runtime.Object, error) {
			return forbidden.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "ledgerterms"}, "globalreserve",
				nil)
		})
		stopFirst, stopSecond := w.runBoth(first, second)
		<-time.After(untilBetween)
		forbidden.Store(true)
		away.Store(true)
		for *w.lease().HolderIdentity != "second" {
			<-time.After(10 * time.Millisecond)
		}
		<-time.After(time.Second)
		assert.Equal(t, "second", *w.lease().HolderIdentity, "it is not given up")
		_ = stopFirst() // by the time it may have seen the other one
		require.NoError(t, stopSecond())
	})
}

// The lease of a leader is not free because somebody deletes it.
func TestDeletedLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first, second := w.elector("first", nil), w.elector("second", nil)
		stopFirst, stopSecond := w.runBoth(first, second)
		<-time.After(time.Minute)
		require.NoError(t, w.core.CoordinationV1().Leases("kube-system").
			Delete(t.Context(), LeaseName, metav1.DeleteOptions{}))
		<-time.After(time.Minute)
		assert.Empty(t, first.Leads(), "it makes the lease again")
		assert.NotEmpty(t, second.Leads())
		require.NoError(t, stopFirst())
		require.NoError(t, stopSecond())
	})
}

// A leader that stops gives its lease up when the API server has abandoned what it sent without an answer that tells.
func TestStopAwaitsWrites(t *testing.T) {
	for name, tc := range map[string]struct {
		answer error
		waits  bool
	}{
		"carried out":      {nil, false},
		"refused":          {apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", nil), false},
		"exists":           {apierrors.NewAlreadyExists(schema.GroupResource{Resource: "reservations"}, "r"), false},
		"no answer":        {errNoAnswer, true},
		"a timeout":        {apierrors.NewTimeoutError("request did not complete", 1), true},
		"an inner error":   {apierrors.NewInternalError(errNoAnswer), true},
		"a storage's word": {apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errNoAnswer), true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				e := w.elector("only", nil)
				stop := w.run(e)
				<-time.After(time.Second)
				require.Equal(t, tc.answer, e.Writes().Do(t.Context(), func(context.Context) error { return tc.answer }))
				stopped := time.Now()
				require.NoError(t, stop())
				assert.Empty(t, w.lease().HolderIdentity)
				assert.Equal(t, tc.waits, time.Since(stopped) >= DefaultTimes().write())
			})
		})
	}
}

// A write begins only while nobody else can lead, and is over by then.
func TestWritesEndWithTheLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		times := DefaultTimes()
		e := w.elector("first", nil)
		away := cutOff(e)
		sent := 0
		send := func(ctx context.Context) error {
			sent++
			<-ctx.Done()
			return ctx.Err()
		}
		require.ErrorIs(t, e.Writes().Do(t.Context(), send), ErrNotSent, "it does not lead yet")
		stop := w.run(e)
		<-time.After(untilBetween)
		away.Store(true)
		renewed := w.lease().RenewTime.Time
		var last time.Time
		err := error(nil)
		for !errors.Is(err, ErrNotSent) {
			last = time.Now()
			err = e.Writes().Do(t.Context(), send)
		}
		assert.LessOrEqual(t, last.Sub(renewed), times.Lease, "the last one was over")
		assert.Greater(t, sent, 3)
		require.NoError(t, stop())
		before := sent
		require.ErrorIs(t, e.Writes().Do(t.Context(), send), ErrNotSent)
		assert.Equal(t, before, sent)
	})
}

// A write that has no answer yet is one of unknown fate.
func TestStopAwaitsWritesUnderWay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := w.elector("only", nil)
		stop := w.run(e)
		<-time.After(time.Second)
		go func() {
			_ = e.Writes().Do(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		synctest.Wait()
		stopped := time.Now()
		require.NoError(t, stop())
		assert.GreaterOrEqual(t, time.Since(stopped), DefaultTimes().write())
		assert.Empty(t, w.lease().HolderIdentity)
	})
}
