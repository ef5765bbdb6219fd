package schedulerplugin

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// member is a pod of a gang that kube-scheduler knows nothing of.
func (f *fixture) member(name string) *v1.Pod {
	pod := newPod(name, "1")
	pod.Annotations = map[string]string{v1alpha1.GangAnnotation: "g", v1alpha1.GangMinAnnotation: "2"}
	f.known(pod)
	return pod
}

// refusedFirst is what PreFilter says of a pod that it refuses; nil where it does not.
func (f *fixture) refusedFirst(pod *v1.Pod) *fwk.Status {
	_, status := f.PreFilter(f.t.Context(), newState(), pod, nil)
	if status.IsSuccess() {
		return nil
	}
	return status
}

// bindRefused has a pod scheduled, and its bind refused for its gang's sake, as Bind does. Nobody is tried again for
// what it had itself.
func (f *fixture) bindRefused(pod *v1.Pod, reason ledger.Reason) {
	f.t.Helper()
	state := f.begin(pod)
	require.True(f.t, f.Reserve(f.t.Context(), state, pod, "a").IsSuccess())
	require.True(f.t, f.gangRefused(cycleOf(state), reason, 0))
	f.Unreserve(f.t.Context(), state, pod, "a")
	synctest.Wait()
	require.NotNil(f.t, f.refusedFirst(pod))
	for len(f.handle.activated) > 0 {
		<-f.handle.activated
	}
}

// The server knows whether a gang can start.
func TestServerAdvisesGangs(t *testing.T) {
	f := newFixture(t)
	status := f.refusedFirst(f.member("m"))
	assert.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code())
	assert.Equal(t, "GlobalReserve: too few pods of the pod's gang exist, or what it needs is not known", status.Message())
	assert.Nil(t, f.refusedFirst(newPod("alone", "1")))
}

// A refused bind has all members of the gang wait, without another request, and all are tried when the pause is over.
func TestRefusedGangIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		first, second := f.member("first"), f.member("second")
		began := time.Now()
		f.bindRefused(first, ledger.GangUnplaced)
		for _, pod := range []*v1.Pod{first, second} {
			assert.Equal(t, "GlobalReserve: there is no capacity for the rest of the pod's gang", f.refusedFirst(pod).Message())
		}
		assert.Nil(t, f.refusedFirst(newPod("alone", "1")))
		assert.ElementsMatch(t, []string{"ns/first", "ns/second"}, []string{<-f.handle.activated, <-f.handle.activated})
		assert.Equal(t, firstGangPause, time.Since(began).Truncate(firstGangPause))
		assert.Nil(t, f.refusedFirst(second))

		began = time.Now()
		f.bindRefused(second, ledger.GangUnplaced)
		assert.NotNil(t, f.refusedFirst(first))
		<-f.handle.activated
		<-f.handle.activated
		assert.Equal(t, 2*firstGangPause, time.Since(began).Truncate(firstGangPause), "twice as long")
	})
}

// Capacity that is freed, and a member that is bound, end the wait.
func TestHoldEndsEarly(t *testing.T) {
	cases := map[string]func(f *fixture){
		"capacity is freed": func(f *fixture) { f.ledger.RemovePod(f.ref(newPod("other", "1")), 0) },
		"another member is bound": func(f *fixture) {
			pod := f.member("new")
			state := newState()
			_, status := f.PreFilter(f.t.Context(), state, pod, nil)
			require.True(f.t, status.IsSuccess(), "with it the gang may be complete")
			require.True(f.t, f.Bind(f.t.Context(), state, pod, "a").IsSuccess())
		},
	}
	for name, do := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.bound(newPod("other", "1"), "a")
				pod := f.member("m")
				f.member("rest")
				for range 2 {
					f.bindRefused(pod, ledger.GangIncomplete)
					<-f.handle.activated
				}
				f.bindRefused(pod, ledger.GangIncomplete)
				<-time.After(2 * firstGangPause) // half of the third pause
				require.NotNil(t, f.refusedFirst(pod))
				do(f)
				began := time.Now()
				assert.Equal(t, "ns/m", <-f.handle.activated)
				assert.Less(t, time.Since(began), firstGangPause)
				assert.Nil(t, f.refusedFirst(pod))
			})
		})
	}
}

// What is remembered of gangs goes when they have capacity.
func TestHoldsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.member("rest")
		f.bindRefused(f.member("m"), ledger.GangUnplaced)
		assert.Len(t, f.waker.holds.held, 1)
		f.waker.gangSettled(kinds.Key{Kind: "globalreserve", Namespace: "ns", Name: "g"})
		assert.Empty(t, f.waker.holds.held)
	})
}

// What is kept for a member does not keep it from other nodes, and may change places while these are looked at. So it
// is tried again, whatever is said of them.
func TestMemberIsNotKeptToItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		pod := f.member("m")
		info, err := f.server.question.Reader.NewPod(pod)
		require.NoError(t, err)
		placement := f.server.question.For(info, "a")
		slot := placement.Slot(time.Now().Add(time.Hour))
		slot.Movable = true
		plan := ledger.Plan{Slots: []ledger.Slot{slot}, Mode: ledger.AllOrNothing}
		require.Empty(t, f.ledger.Reserve(plan, time.Now()).Rejections)
		result, status := f.PreFilter(t.Context(), newState(), pod, nil)
		require.True(t, status.IsSuccess())
		assert.Nil(t, result, "any node will do")
		began := time.Now()
		assert.Equal(t, "ns/m", <-f.handle.activated)
		assert.Equal(t, firstGangPause, time.Since(began))
	})
}

// A pod that is tried for other reasons, too, while it waits to be tried again has one attempt to come, not one for
// each.
func TestAttemptsToComeDoNotAddUp(t *testing.T) {
	tests := map[string]struct {
		pause time.Duration
		try   func(w *waker, pod *cluster.Pod)
	}{
		"its place may move":     {firstGangPause, (*waker).tryAgain},
		"Reserve has refused it": {mostPause, func(w *waker, pod *cluster.Pod) { w.again(pod, ledger.CallerLimit, 0) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				pod, err := f.server.question.Reader.NewPod(f.member("m"))
				require.NoError(t, err)
				began := time.Now()
				for range 5 { // events of the cluster
					test.try(f.waker, pod)
					<-time.After(test.pause / 10)
				}
				for range 5 {
					<-f.handle.activated
					test.try(f.waker, pod)
				}
				assert.Equal(t, 5*test.pause, time.Since(began))
			})
		})
	}
}
