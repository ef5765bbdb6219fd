package election

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

func TestOneLeads(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first, second := w.elector("first", nil), w.elector("second", nil)
		assert.Equal(t, "no server decides now; ask again in a moment", first.Leads())
		stopFirst := w.run(first)
		<-time.After(time.Second)
		require.Empty(t, first.Leads())
		assert.Equal(t, ever, w.led)
		assert.Zero(t, w.followed.Load(), "the first server need not prepare itself to take over")
		stopSecond := w.run(second)
		<-time.After(untilBetween)
		assert.Positive(t, w.followed.Load())
		assert.Empty(t, first.Leads(), "the lease is renewed")
		assert.Equal(t, "server first decides, and not this one", second.Leads())
		before := first.Term().Get()
		assert.Equal(t, before, Term(w.term()))

		require.NoError(t, stopFirst())
		assert.NotEmpty(t, first.Leads())
		assert.Equal(t, before, first.Term().Get(), "what it still sends must be known to be late")
		assert.Empty(t, ptr.Deref(w.lease().HolderIdentity, ""), "the next one need not wait")
		<-time.After(time.Second)
		require.Empty(t, second.Leads())
		assert.Less(t, w.led, time.Second)
		assert.Greater(t, second.Term().Get(), before)
		require.NoError(t, stopSecond())
	})
}

// A lease that cannot be renewed is lost before another server can have it. If none has, the server goes on as it can.
func TestLostLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := w.elector("only", nil)
		away := cutOff(e)
		stop := w.run(e)
		<-time.After(untilBetween)
		require.Empty(t, e.Leads())
		away.Store(true)
		renewed := w.lease().RenewTime.Time
		for e.Leads() == "" {
			<-time.After(100 * time.Millisecond)
		}
		assert.Less(t, time.Since(renewed), DefaultTimes().Lease, "another server has it from then on")
		assert.Contains(t, e.Leads(), "could not renew its lease")
		term := e.Term().Get()
		<-time.After(time.Minute)
		assert.NotEmpty(t, e.Leads())
		assert.Zero(t, w.resumed)
		away.Store(false)
		<-time.After(DefaultTimes().Lease)
		assert.Empty(t, e.Leads())
		assert.Equal(t, []int{1, 1}, []int{w.took, w.resumed})
		assert.Equal(t, term, e.Term().Get())
		assert.Equal(t, term, Term(w.term()))
		require.NoError(t, stop())
		assert.Empty(t, ptr.Deref(w.lease().HolderIdentity, ""))
	})
}

// A server that could not renew its lease ends where another one has had it since, also if that one is gone again.
func TestLostLeaseOfAnother(t *testing.T) {
	for name, gone := range map[string]bool{"another one decides": false, "another one decided": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				first, second := w.elector("first", nil), w.elector("second", nil)
				cut := cutOff(first)
				stopFirst, stopSecond := w.runBoth(first, second)
				require.Empty(t, first.Leads())
				cut.Store(true)
				<-time.After(time.Minute)
				require.Empty(t, second.Leads())
				require.NotEmpty(t, first.Leads())
				if gone {
					require.NoError(t, stopSecond())
				}
				cut.Store(false)
				<-time.After(time.Minute)
				require.NotEmpty(t, first.Leads())
				require.ErrorIs(t, stopFirst(), errLost)
				assert.Zero(t, w.resumed)
				if !gone {
					require.NoError(t, stopSecond())
				}
			})
		})
	}
}

// Where the API server was away from all servers, the one that decided goes on, and the other ones stand by.
func TestAllServersAreCutOff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first, second := w.elector("first", nil), w.elector("second", nil)
		cutFirst, cutSecond := cutOff(first), cutOff(second)
		stopFirst, stopSecond := w.runBoth(first, second)
		for outage := time.Second; outage < 2*time.Minute; outage += 7*time.Second + 130*time.Millisecond {
			<-time.After(time.Minute)
			require.Empty(t, first.Leads())
			cutFirst.Store(true)
			cutSecond.Store(true)
			<-time.After(outage)
			cutFirst.Store(false)
			cutSecond.Store(false)
		}
		<-time.After(time.Minute)
		assert.Empty(t, first.Leads())
		assert.Equal(t, 1, w.took)
		assert.Greater(t, w.resumed, 10)
		require.NoError(t, stopSecond())
		require.NoError(t, stopFirst())
	})
}

// A process that was suspended learns from its clock that the lease may be another's.
func TestSuspendedProcess(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := w.elector("only", nil)
		stop := w.run(e)
		<-time.After(time.Second)
		require.Empty(t, e.Leads())
		w.suspended.Store(int64(time.Hour))
		assert.Contains(t, e.Leads(), "could not renew its lease")
		_ = stop()
	})
}

// Whoever cannot take over lets others try, and tries again itself where nothing was begun.
func TestTakeOverFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		fails := errors.New("cannot list pods")
		e := w.elector("only", func(o *Options) { o.TakeOver = func(context.Context, time.Duration) error { return fails } })
		require.ErrorIs(t, e.Run(t.Context()), fails)
		assert.Empty(t, ptr.Deref(w.lease().HolderIdentity, ""))

		var allowed atomic.Bool
		w.own.PrependReactor("update", "ledgerterms", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !allowed.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "ledgerterms"},
				v1alpha1.LedgerTermName, nil)
		})
		e = w.elector("another", nil)
		stop := w.run(e)
		<-time.After(time.Minute)
		assert.NotEmpty(t, e.Leads())
		allowed.Store(true)
		<-time.After(10 * time.Second)
		assert.Empty(t, e.Leads())
		require.NoError(t, stop())
	})
}

// The lease of a server that is gone is taken when it is over by the longer of both servers' times, and by one.
func TestLeaseOfAServerThatIsGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		holder, times := "gone", int32(20)
		_, err := w.core.CoordinationV1().Leases("kube-system").Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: LeaseName},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: &times,
				RenewTime: &metav1.MicroTime{Time: time.Now()},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		first, second := w.elector("first", nil), w.elector("second", nil)
		stopFirst, stopSecond := w.run(first), w.run(second)
		<-time.After(19 * time.Second)
		assert.Equal(t, "server gone decides, and not this one", first.Leads())
		<-time.After(3 * time.Second)
		assert.NotEqual(t, first.Leads() == "", second.Leads() == "", "one of them decides")
		assert.Equal(t, 1, w.took)
		assert.InDelta(t, 20, w.led.Seconds(), 2)
		require.NoError(t, stopFirst())
		require.NoError(t, stopSecond())
	})
}

// A server that was suspended does not give up the lease of the one that has it now.
func TestLeaseOfOthersIsNotGivenUp(t *testing.T) {
	w := newWorld(t, true)
	first, second := w.elector("first", nil).lease, w.elector("second", nil).lease
	require.NoError(t, first.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "first"}))
	_, _, err := second.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, second.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "second"}))
	lost := false
	first.others = func() { lost = true }
	_, _, err = first.Get(t.Context())
	require.NoError(t, err)
	assert.True(t, lost)
	require.ErrorIs(t, first.Update(t.Context(), resourcelock.LeaderElectionRecord{}), errOthers)
	assert.Equal(t, "second", *w.lease().HolderIdentity)
	require.ErrorIs(t, second.Update(t.Context(), resourcelock.LeaderElectionRecord{}), errKept, "it may go on")
	resigned, resign := context.WithCancel(t.Context())
	resign()
	second.running = resigned
	require.NoError(t, second.Update(t.Context(), resourcelock.LeaderElectionRecord{}))
	assert.Empty(t, ptr.Deref(w.lease().HolderIdentity, ""))
}

// Without an election a server decides in a term of its own, once no other one does: two that decide beside each
// other, of which one does not look, end each other again and again.
func TestAloneWaitsForTheLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first, alone := w.elector("first", nil), w.elector("alone", func(o *Options) { o.Alone = true })
		stopFirst, stopAlone := w.runBoth(first, alone)
		<-time.After(time.Minute)
		assert.Empty(t, first.Leads())
		assert.NotEmpty(t, alone.Leads())
		require.NoError(t, stopFirst())
		<-time.After(time.Second)
		assert.Empty(t, alone.Leads())
		assert.Greater(t, alone.Term().Get(), first.Term().Get())
		require.NoError(t, stopAlone())
	})
}

func TestTimes(t *testing.T) {
	require.NoError(t, DefaultTimes().Validate(3*time.Second))
	require.NoError(t, Times{4 * time.Second, 3 * time.Second, time.Second}.Validate(3*time.Second))
	for name, times := range map[string]Times{
		"no whole seconds":         {1500 * time.Millisecond, time.Second, 100 * time.Millisecond},
		"renewed for too long":     {4 * time.Second, 4 * time.Second, time.Second},
		"never renewed":            {4 * time.Second, 0, time.Second},
		"tried too rarely":         {4 * time.Second, 3 * time.Second, 3 * time.Second},
		"shorter than one request": {3 * time.Second, 2 * time.Second, time.Second},
	} {
		require.Error(t, times.Validate(2500*time.Millisecond), name)
	}
}
